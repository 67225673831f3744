"""Results beside eager's: what counts as the same, and what float64 excuses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau.debugging.compare import copies, difference, run


def test_the_first_difference_is_named() -> None:
    ones = torch.ones(4)
    assert difference((ones, [ones]), (ones, [ones.clone()])) == ""
    assert difference((ones, [ones]), (ones, [ones + 1])).startswith("result 1: off by 1")
    assert "structure" in difference((ones,), [ones])
    assert "shape" in difference(ones, torch.ones(5))
    assert "dtype" in difference(ones, ones.double())
    assert "2 of 3 elements" in difference(torch.tensor([1, 2, 3]), torch.tensor([1, 0, 0]))
    assert difference(torch.tensor([1]), torch.tensor([2]), ignore_integers=True) == ""
    assert difference(3, 4) == "result 0: 3 instead of 4"


def test_nan_equals_nan_and_nothing_else() -> None:
    nan, one = torch.tensor([float("nan")]), torch.tensor([1.0])
    assert difference(nan, nan.clone()) == ""
    assert difference(nan, one) and difference(one, nan)


def test_float64_decides() -> None:
    """A result as far from eager's as eager's is from the truth is right; one that is farther is wrong."""
    true = torch.zeros(8, dtype=torch.float64)
    eager = torch.full((8,), 1e-3)
    assert difference(torch.full((8,), -1e-3), eager, lambda: true) == ""
    assert difference(torch.full((8,), 0.5), eager, lambda: true) != ""
    assert difference(torch.full((8,), -1e-3), eager) != ""


def test_copies_share_memory_as_the_originals_do() -> None:
    base = torch.arange(12.0).view(3, 4)
    part = base[1:, ::2]
    one, other, again, number = copies([base, part, base, 7])
    assert again is one and number == 7
    assert other.stride() == part.stride() and torch.equal(other, part)
    one.zero_()
    assert not other.any() and part.any()


def test_run_gives_results_writes_and_gradients() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return x * 2

    x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
    result: Any = run(program, [x, y])
    assert torch.equal(result[0], torch.full((3,), 2.0))
    assert torch.equal(result[1][1], torch.ones(3))
    assert torch.allclose(result[2][0], 2 * torch.linspace(0.5, 1, 3))
