"""Modes that see or change every operation (`__torch_function__`, `__torch_dispatch__`, forward-mode differentiation), entered around
and inside of compiled functions, before and after ordinary calls: eager's results. Levels of forward mode inside: `test_forward_mode.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import flambeau


class PlusOne(TorchFunctionMode):
    """Adds one to every sine."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + 1 if func in (torch.sin, Tensor.sin) else result


class PlusTwo(TorchDispatchMode):
    """Adds two to every sine."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result + 2 if func is torch.ops.aten.sin.default else result


def sine(x: Tensor) -> Tensor:
    return torch.sin(x) * 2


def _around_the_call(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    x = torch.ones(3)
    compiled = flambeau.compile(sine)
    plain = sine(x)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), plain)
        with mode():
            torch.testing.assert_close(compiled(x), sine(x))
            assert (compiled(x) > plain + 1).all()


@pytest.mark.falls_back("is active")
def test_a_dispatch_mode_around_the_call() -> None:
    _around_the_call(PlusTwo)


def test_a_function_mode_around_the_call() -> None:
    _around_the_call(PlusOne)


def _inside_of_the_function(mode: Callable[[], AbstractContextManager[Any]], *, fullgraph: bool) -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        first = sine(x)
        with mode():
            second = x.sin() * 2 + sine(x)
        return first, second, sine(x)

    compiled = flambeau.compile(function, fullgraph=fullgraph)
    for rows in (3, 4):
        x = torch.ones(rows)
        torch.testing.assert_close(compiled(x), function(x))


@pytest.mark.falls_back("is active")
def test_a_dispatch_mode_inside_of_the_function() -> None:
    _inside_of_the_function(PlusTwo, fullgraph=False)


def test_a_function_mode_inside_of_the_function() -> None:
    _inside_of_the_function(PlusOne, fullgraph=True)


class Counts(TorchFunctionMode):
    """Notes what it is asked about, and multiplies sines."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.__name__, types, len(args), sorted(kwargs or {})))
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func in (torch.sin, Tensor.sin) else result


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_mode_around_the_call_is_asked_as_in_eager(dynamic: bool | None) -> None:
    def function(x: Tensor, layer: torch.nn.Module) -> Tensor:
        return sine(layer(x)) * x.shape[0] + torch.zeros(3)

    layer, mode = torch.nn.Linear(3, 3), Counts(2.0)
    compiled = flambeau.compile(function, fullgraph=True, dynamic=dynamic)
    for rows, factor in ((2, 2.0), (2, 2.0), (4, 2.0), (5, 3.0)):
        x = torch.rand(rows, 3)
        mode.factor, found = factor, []
        for call in (function, compiled):
            mode.seen.clear()
            with mode:
                result = call(x, layer)
            found.append((result, list(mode.seen)))
        (wanted, asked), (given, seen) = found
        torch.testing.assert_close(given, wanted)
        assert seen == asked and len(seen) > 3
        torch.testing.assert_close(compiled(x, layer), function(x, layer))


def test_a_break_within_a_mode_leaves_it_in_force() -> None:
    mode = Counts(3.0)

    def function(x: Tensor) -> Tensor:
        with mode:
            y = sine(x)
            print(end="")
            y = y + sine(x)
        return y + sine(x)

    compiled, x = flambeau.compile(function), torch.ones(3)
    wanted, asked = function(x), list(mode.seen)
    for _ in range(2):
        mode.seen.clear()
        torch.testing.assert_close(compiled(x), wanted)
        assert mode.seen == asked


@pytest.mark.falls_back("is active")
def test_tangents_of_inputs() -> None:
    compiled = flambeau.compile(sine)
    x = torch.ones(3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), sine(x))
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.full((3,), 2.0))
            torch.testing.assert_close(forward_ad.unpack_dual(compiled(dual)), forward_ad.unpack_dual(sine(dual)))


@pytest.mark.parametrize("mode", [PlusTwo, forward_ad.dual_level])
def test_fullgraph_refuses(mode: Callable[[], AbstractContextManager[Any]]) -> None:
    compiled = flambeau.compile(sine, fullgraph=True)
    compiled(torch.ones(3))
    with mode(), pytest.raises(Exception, match="is active"):
        compiled(torch.ones(3))
