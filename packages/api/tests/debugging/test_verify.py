"""Calls compared with eager while a program runs: differences are told, and nothing else changes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import flambeau
from flambeau.debugging.verify import WrongResult, rate_of
from flambeau.errors import InvalidOption


def _off(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend that is wrong by one."""
    return lambda *given: tuple(value + 1 for value in gm.forward(*given))


def _right(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return gm.forward


def _program(x: Tensor) -> Tensor:
    return x.sin() * 2


def test_a_difference_warns_and_the_call_goes_on() -> None:
    compiled = flambeau.compile(_program, backend=_off, options={"verify": 1})
    x = torch.randn(4)
    with pytest.warns(RuntimeWarning, match="differs from eager: result 0: off by 1"):
        result = compiled(x)
    torch.testing.assert_close(result, _program(x) + 1)


def test_a_difference_is_an_error_where_that_is_asked_for() -> None:
    compiled = flambeau.compile(_program, backend=_off, options={"verify": "1,error"})
    with pytest.raises(WrongResult, match="off by 1") as caught:
        compiled(torch.randn(4))
    assert isinstance(caught.value, flambeau.errors.InternalError)


def test_a_sample_of_the_calls() -> None:
    """Every third: the first, the fourth, the seventh."""
    compiled = flambeau.compile(_program, backend=_off, options={"verify": 3})
    told = []
    for _ in range(7):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(torch.randn(4))
        told.append(len(caught))
    assert told == [1, 0, 0, 1, 0, 0, 1]


def test_nothing_of_the_program_changes() -> None:
    """Writes happen once, numbers are drawn once, gradients come once."""

    def program(x: Tensor, count: Tensor) -> Tensor:
        count.add_(1)
        return x * torch.rand(4)

    x, count = torch.ones(4, requires_grad=True), torch.zeros(1)
    torch.manual_seed(3)
    expected = program(x, torch.zeros(1)).detach()
    after = torch.rand(1)
    torch.manual_seed(3)
    compiled = flambeau.compile(program, backend=_right, options={"verify": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = compiled(x, count)
    torch.testing.assert_close(result.detach(), expected)
    assert torch.equal(torch.rand(1), after)
    assert float(count) == 1 and x.grad is None
    result.sum().backward()
    torch.testing.assert_close(x.grad, expected)


def test_gradients_are_compared() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return 2 * grads[0]

    def wrong_gradients(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return lambda *given: tuple(Doubled.apply(value) for value in gm.forward(*given))

    compiled = flambeau.compile(_program, backend=wrong_gradients, options={"verify": "1,error"})
    with pytest.raises(WrongResult):
        compiled(torch.randn(4, requires_grad=True))


def test_rates() -> None:
    assert rate_of(8) == (8, False)
    assert rate_of(0.1) == (10, False)
    assert rate_of("4,error") == (4, True)
    assert rate_of("error") == (1, True)
    assert rate_of(True) == (1, False)
    assert rate_of(0) == (0, False)
    for wrong in ("often", -1, "1,2"):
        with pytest.raises(InvalidOption, match="verify takes"):
            rate_of(wrong)


def test_a_wrong_rate_is_told_at_once() -> None:
    with pytest.raises(InvalidOption):
        flambeau.compile(_program, options={"verify": "often"})


def test_where_eager_raises_the_call_itself_does() -> None:
    """Verification keeps out of it."""

    def program(x: Tensor) -> Tensor:
        return x[torch.tensor([9])]

    compiled = flambeau.compile(program, backend=_right, options={"verify": "1,error"})
    with pytest.raises(IndexError):
        compiled(torch.randn(4))


def test_a_graph_without_a_twin_in_float64() -> None:
    """A difference stays one where float64 cannot be asked."""

    def program(x: Tensor) -> Tensor:
        return x @ torch.ones(4, dtype=torch.float32)

    compiled = flambeau.compile(program, backend=_off, options={"verify": "1,error"})
    with pytest.raises(WrongResult):
        compiled(torch.randn(4, 4))
