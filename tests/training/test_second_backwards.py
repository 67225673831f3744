"""Backwards of backwards, after which the caller keeps less than the forward was given: as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import flambeau


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_input_that_is_gone_and_decides_nothing(dynamic: bool) -> None:
    def f(x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        return (s * s).sum() + x[:2] * 3 + y[1:].sum()

    seconds = []
    for g in (f, flambeau.compile(f, backend="aot_eager", dynamic=dynamic)):
        x, s = (torch.arange(1.0, 5.0).requires_grad_() for _ in range(2))
        out = g(x * 2, torch.ones(4), s)
        firsts = torch.autograd.grad(out.pow(2).sum(), [x, s], create_graph=True)
        seconds.append(torch.autograd.grad(sum(first.sum() for first in firsts), [x, s]))
    for plain, compiled in zip(*seconds):
        assert torch.equal(plain, compiled)
