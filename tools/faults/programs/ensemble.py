"""Three members of an ensemble that differ in numbers alone, each compiled by itself."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

import flambeau


def member(x: Tensor, weight: Tensor, *, slope: float, power: float) -> Tensor:
    y = functional.leaky_relu(x @ weight, slope)
    y = y - y.mean(0)
    y = y / (y.abs().amax(1, keepdim=True) + 0.1)
    z = torch.sign(y) * y.abs().pow(power)
    gate = torch.sigmoid(z.cumsum(1) * slope)
    return functional.softplus(z * gate + 0.5).sum(1)


if __name__ == "__main__":
    torch.manual_seed(0)
    x, weight = torch.randn(6, 8), torch.randn(8, 9)
    for slope, power in ((0.1, 1.5), (0.3, 1.5), (0.3, 2.5)):
        one = partial(member, slope=slope, power=power)
        torch.testing.assert_close(flambeau.compile(lambda x, w, one=one: one(x, w))(x, weight), one(x, weight))
