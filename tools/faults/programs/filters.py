"""Filters of a signal: padding, frames, reversal, strides, and writes into parts of a result."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import flambeau


def spectrum(wave: Tensor, window: Tensor) -> tuple[Tensor, ...]:
    padded = functional.pad(wave, (3, 4), value=0.5)
    frames = padded.unfold(-1, window.shape[0], 3) * window
    back = frames.flip(-1).roll(2, 1)
    even, odd = frames[..., ::2], frames[..., 1::2]
    joined = torch.cat([even + 1, odd * 2, back[..., :3]], -1)
    grid = joined.transpose(1, 2).contiguous()
    grid[:, 1:-1] = grid[:, 1:-1] * 0.5 + grid[:, :-2] * 0.25
    grid[:, 2] += 1
    turned = grid.permute(2, 0, 1).reshape(grid.shape[2], -1)
    twisted = wave.unflatten(1, (1, 29)).repeat(1, 3, 1).transpose(1, 2).transpose(0, 1)
    diagonal = torch.zeros(6, 6)
    diagonal.diagonal(1).copy_(turned[0, :5])
    upper = torch.tril(turned[:, : turned.shape[0]]) + diagonal.sum()
    energy = functional.avg_pool1d(grid.square(), 3, 2, 1).sqrt()
    return joined.tanh(), grid, upper, energy, diagonal.exp(), twisted * 2


if __name__ == "__main__":
    torch.manual_seed(0)
    wave, window = torch.randn(2, 29), torch.hann_window(8)
    torch.testing.assert_close(flambeau.compile(spectrum)(wave, window), spectrum(wave, window))
