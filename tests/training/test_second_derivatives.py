"""Derivatives of derivatives through graphs around breaks: what lies between the graphs is freed by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import flambeau
from tests.comparison import assert_same

PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "softmax": lambda x: x.softmax(0),
    "of a sum": lambda x: (x + 1).tanh() * (x - 1).sin(),
    "relu": lambda x: (x.relu() + 1).log(),
    "dropout": lambda x: F.dropout(x.exp(), 0.5) * x,
    "normalised": lambda x: F.layer_norm(x * 2, (4,)).sigmoid(),
}


def _after_a_break(program: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        x = x * 2
        print(end="")
        x = program(x)
        print(end="")
        return x.cos()

    return run


def _derivatives(run: Callable[[Tensor], Any], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.linspace(-1.1, 1.2, 12, dtype=dtype).view(3, 4).requires_grad_()
    found = [run(x)]
    for _ in range(3):
        found += torch.autograd.grad(found[-1].square().sum(), x, create_graph=True)
    return [*found, torch.rand(2)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_after_a_break(name: str) -> None:
    """Freshly compiled, and from the cache, which has no graphs."""
    run = _after_a_break(PROGRAMS[name])
    expected = _derivatives(run)
    for _ in range(2):
        flambeau.compiler.reset()
        assert_same(_derivatives(flambeau.compile(run)), expected)


def test_rounds_of_a_loop_with_changing_sizes() -> None:
    def run(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x + 1).sin() * 0.5
            print(end="")
        return x

    compiled = flambeau.compile(run, dynamic=True)
    for rows in (3, 5, 7):
        for function in (compiled, run):
            x = torch.linspace(-1, 1, rows).requires_grad_()
            (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.square().sum(), x)
            if function is compiled:
                found = (first, second)
        assert_same(found, (first, second))
