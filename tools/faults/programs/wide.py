"""A long chain of elementwise work and sums over a large table: is it as fast as eager?"""

from __future__ import annotations

import torch
from torch import Tensor

import flambeau


def chain(x: Tensor, y: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    z = torch.tanh(x * 1.5 + bias)
    z = torch.where(y > 0, z * y, z - y)
    z = z / (1 + z.abs())
    scale = (z * z).mean(-1, keepdim=True)
    z = z * torch.rsqrt(scale + 1e-5) + bias
    weights = torch.softmax(z, -1)
    return (weights * y).sum(-1), torch.exp(-z.square()) * x


if __name__ == "__main__":
    torch.manual_seed(0)
    x, y, bias = torch.randn(512, 1024), torch.randn(512, 1024), torch.randn(1024)
    with torch.no_grad():
        torch.testing.assert_close(flambeau.compile(chain)(x, y, bias), chain(x, y, bias), rtol=1e-4, atol=1e-4)
