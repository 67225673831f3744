"""Trains a transformer block for a step, and holds the loss and the gradients against eager's."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import flambeau


class Block(nn.Module):
    """Causal attention and a feed-forward part, each behind a norm."""

    def __init__(self, width: int = 24, heads: int = 3) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.together, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.together(self.first(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.second(x))))


def step(run: object, model: Block, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss = run(x).square().mean()
    loss.backward()
    return [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]


if __name__ == "__main__":
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 7, 24)
    torch.testing.assert_close(step(flambeau.compile(model), model, x), step(model, model, x))
