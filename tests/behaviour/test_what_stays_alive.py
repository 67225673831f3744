"""A compiled function keeps nothing of a call alive once the call is over: neither its arguments nor what it computed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flambeau


class Batch:
    """An argument that holds a tensor, as data loaders make them."""

    def __init__(self, x: Tensor) -> None:
        self.x = x


def plain(batch: Batch, extra: list[Tensor]) -> Tensor:
    return F.gelu(batch.x * 2) + extra[0]


def breaks(batch: Batch, extra: list[Tensor]) -> Tensor:
    y = batch.x * 2
    print(end="")
    return y.sin() + extra[0]


def changes(batch: Batch, extra: list[Tensor]) -> Tensor:
    batch.x.add_(1)
    extra.append(batch.x * 3)
    return extra[-1].cos()


def loops(batch: Batch, extra: list[Tensor]) -> Tensor:
    for _ in range(3):
        extra = [extra[0] + batch.x.sum().item()]
    return extra[0]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [plain, breaks, changes, loops])
def test_arguments_and_results_go_with_the_call(program: Callable[..., Any], backend: str) -> None:
    """Also those that the call was compiled for, static and dynamic."""
    compiled = flambeau.compile(program, backend=backend)
    for size in (8, 9, 10):
        batch, extra = Batch(torch.ones(size)), [torch.ones(size)]
        result = compiled(batch, extra)
        held = [weakref.ref(o) for o in (batch, batch.x, extra[0], extra[-1], result)]
        del batch, extra, result
        gc.collect()
        assert [reference() for reference in held] == [None] * 5


def test_activations_go_with_the_step() -> None:
    """Training: the input, the loss, and the module itself once the compiled one is dropped."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    compiled = flambeau.compile(model)
    x = torch.ones(3, 4, requires_grad=True)
    loss = compiled(x).sum()
    loss.backward()
    held = [weakref.ref(o) for o in (x, x.grad, loss)]
    del x, loss
    gc.collect()
    assert [reference() for reference in held] == [None] * 3
    gone = weakref.ref(model)
    del model, compiled
    gc.collect()
    assert gone() is None


class Made:
    """What a program makes for itself."""


def raises_after_a_break(x: Tensor, log: list[Any]) -> Tensor:
    made = Made()
    log.append(weakref.ref(made))
    x = x * 2
    if x.sum().item() > 0:
        raise ValueError("positive")
    made.x = x
    return x


def raises_at_once(x: Tensor, log: list[Any]) -> Tensor:
    made = Made()
    log.append(weakref.ref(made))
    made.x = x * 2
    raise ValueError(made.x.dim())


def suspended(x: Tensor) -> Any:
    with torch.no_grad():
        yield x * 2
        yield x * 3


def leaves_a_generator(x: Tensor, log: list[Any]) -> Tensor:
    waiting = suspended(x)
    log.append(weakref.ref(waiting))
    x = x + next(waiting)
    print(end="")
    if x.sum().item() > 0:
        raise ValueError(type(waiting))
    return x


@pytest.mark.parametrize("program", [raises_after_a_break, raises_at_once, leaves_a_generator])
def test_what_a_program_made_ends_with_its_call(program: Callable[..., Any]) -> None:
    """Also of a call that is looked at by the compiler: not when Python's collector comes, which here it does not."""
    gc.collect()
    gc.disable()
    try:
        compiled = flambeau.compile(program)
        for _ in range(3):
            log: list[Any] = []
            try:
                compiled(torch.ones(2), log)
            except ValueError:
                pass
            assert torch.is_grad_enabled()
            assert [made() for made in log] == [None]
    finally:
        gc.enable()


class Told:
    """It tells of its end."""

    def __init__(self, number: int, log: list[Any]) -> None:
        self.number, self.log = number, log

    def __del__(self) -> None:
        self.log.append(self.number)


def ends_in_turn(x: Tensor, log: list[Any]) -> Tensor:
    made = Told(1, log)
    made = Told(2, log)
    log.append("second")
    del made
    log.append("none")
    Told(3, log)
    log.append("end")
    return x * 2


def asks_a_weak_reference(x: Tensor, log: list[Any]) -> Tensor:
    made = Made()
    made.x = x * 2
    reference = weakref.ref(made)
    x = x + reference().x
    del made
    log.append(reference() is None)
    return x


def asks_about_a_tensor(x: Tensor, log: list[Any]) -> Tensor:
    doubled = x * 2
    reference = weakref.ref(doubled)
    x = x + reference()
    del doubled
    log.append(reference() is None)
    return x


_LEFT_OUT = (pytest.mark.falls_back("which has a __del__"), pytest.mark.compiles(graphs=0))


@pytest.mark.parametrize(
    "program", [pytest.param(ends_in_turn, marks=_LEFT_OUT), asks_a_weak_reference, asks_about_a_tensor]
)
def test_what_ends_within_its_call(program: Callable[..., Any]) -> None:
    """Also where the frame is left to Python, for what it makes tells of its end."""
    compiled, expected = flambeau.compile(program), []
    result = program(torch.ones(2), expected)
    for _ in range(3):
        log: list[Any] = []
        assert torch.equal(compiled(torch.ones(2), log), result)
        assert log == expected
