"""Ops of a library that write to their arguments: library calls in the compiled program, their writes seen by all that shares the memory.

In: programs around such ops, each compiled and in eager. Out: equal results, layouts, sharing, inputs afterwards and gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

from ..comparison import assert_same, outcome

_library = torch.library.Library("flambeau_written", "DEF")
_library.define("put_(Tensor(a!) target, Tensor source, float scale=1., *, Tensor(b!)? count=None) -> ()")
_library.define("all_(Tensor(a!)[] targets, SymInt step) -> Tensor")


def _put(target: Tensor, source: Tensor, scale: float = 1.0, *, count: Tensor | None = None) -> None:
    target.copy_(target * 0.5 + source.sum() * scale)
    if count is not None:
        count.add_(1)


def _all(targets: list[Tensor], step: int) -> Tensor:
    for target in targets:
        target.add_(step)
    return torch.stack([target.sum() for target in targets])


_library.impl("put_", _put, "CompositeExplicitAutograd")
_library.impl("all_", _all, "CPU")
torch.library.register_fake("flambeau_written::all_", lambda targets, step: targets[0].new_empty(len(targets)))


@torch.library.custom_op("flambeau_written::swap", mutates_args={"first", "second"})
def swap(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """Exchange two tensors; returns their sum."""
    total = first + second if bias is None else first + second + bias
    kept = first.clone()
    first.copy_(second)
    second.copy_(kept)
    return total


@swap.register_fake
def _(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.empty_like(first)


ops = torch.ops.flambeau_written


def input_itself(x: Tensor, y: Tensor) -> Tensor:
    before = x + 1
    ops.put_(x, y)
    return before * x


def only_a_write(x: Tensor, y: Tensor) -> Tensor:
    ops.put_(x, y, 2.0)
    return y * 2


def view_of_an_input(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    ops.put_(x[1:, ::2], y)
    return x.sum(0), x.t()


def two_views(x: Tensor, y: Tensor) -> Tensor:
    left, right = x.split([x.shape[1] // 2, x.shape[1] - x.shape[1] // 2], 1)
    ops.all_([left, right], 3)
    return x * y


def view_of_an_intermediate(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = x * 2
    row = z[0]
    ops.put_(z.t(), y)
    return row + 1, z


def twice(x: Tensor, y: Tensor) -> Tensor:
    ops.put_(x, y)
    ops.put_(x, x * y)
    return x + 1


def exchanged(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    z = y.clone()
    total = swap(x, z, y)
    return total, z


def in_fresh_memory(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x.t())
    out.zero_()
    ops.put_(out, x)
    return out @ y


def several(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    count = torch.zeros((), dtype=torch.int64)
    a, b = x.exp(), y.clone()
    sums = ops.all_([a, b], x.shape[0])
    ops.put_(a, b, count=count)
    ops.put_(b, a, count=count)
    return sums * a.sum(), count


def unused_result(x: Tensor, y: Tensor) -> Tensor:
    ops.all_([x], 1)
    return y.sin()


PROGRAMS = (
    input_itself, only_a_write, view_of_an_input, two_views, view_of_an_intermediate, twice, exchanged, in_fresh_memory, several,
    unused_result,
)  # fmt: skip


@pytest.mark.parametrize("dynamic", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("program", PROGRAMS)
def test_writes_are_those_of_eager(program: Callable[..., Any], dynamic: bool) -> None:
    compiled = flambeau.compile(program, dynamic=dynamic)
    for rows in (4, 5):
        inputs = [torch.linspace(-1, 1, 4 * rows).view(rows, 4), torch.linspace(0, 2, 4 * rows).view(rows, 4)]
        (ours, tensors), (theirs, wanted) = (outcome(call, inputs, "plain") for call in (compiled, program))
        assert ours == theirs
        assert_same(tensors, wanted)


def through_a_buffer(weight: Tensor, x: Tensor) -> Tensor:
    """What the backward reads was written before; it must not be made anew without the write."""
    scale = torch.ones_like(x)
    ops.put_(scale, x)
    return (weight * scale).sum()


def statistics(weight: Tensor, running: Tensor) -> Tensor:
    hidden = weight * 2
    ops.put_(running, hidden.detach())
    return (hidden * running).tanh().sum()


def result_of_a_call(weight: Tensor, x: Tensor) -> Tensor:
    other = x.clone()
    total = swap(x, other)
    return (weight * total * other).exp().mean()


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("program", [through_a_buffer, statistics, result_of_a_call])
def test_gradients_around_a_write(program: Callable[..., Tensor], backend: str) -> None:
    results = []
    for call in (flambeau.compile(program, backend=backend), program):
        weight, x = torch.linspace(-1, 1, 6).requires_grad_(), torch.linspace(0, 1, 6)
        loss = call(weight, x)
        loss.backward()
        results.append((loss.detach(), weight.grad, x))
    assert_same(*results)


def test_the_op_is_called_once_and_an_input_is_not_copied() -> None:
    """The call writes the argument's own memory: its address is the caller's."""
    seen = []

    @torch.library.custom_op("flambeau_written::address", mutates_args={"target"})
    def address(target: Tensor, source: Tensor) -> None:
        seen.append(target.data_ptr())
        target.add_(source)

    @flambeau.compile
    def program(x: Tensor, y: Tensor) -> Tensor:
        address(x, y * 2)
        return x.sin()

    x = torch.ones(8)
    assert_same(program(x, torch.ones(8)), torch.full((8,), 3.0).sin())
    assert_same(x, torch.full((8,), 3.0))
    assert seen == [x.data_ptr()]


def same_tensor_twice(x: Tensor, y: Tensor) -> Tensor:
    z = y + 1
    ops.put_(z, z)
    return z


def overlapping(x: Tensor, y: Tensor) -> Tensor:
    z = y + 1
    ops.all_([z[:3], z[1:]], 2)
    return z


@pytest.mark.falls_back("another in the same memory")
@pytest.mark.parametrize("program", [same_tensor_twice, overlapping])
def test_arguments_that_share_memory_are_left_to_eager(program: Callable[..., Tensor]) -> None:
    inputs = [torch.ones(4, 4), torch.ones(4, 4)]
    (ours, tensors), (theirs, wanted) = (
        outcome(call, inputs, "plain") for call in (flambeau.compile(program), program)
    )
    assert ours == theirs
    assert_same(tensors, wanted)


@pytest.mark.falls_back("a tensor is written whose memory another input shares")
@pytest.mark.parametrize("part", [slice(None), slice(2, 5)])
def test_an_argument_in_the_memory_of_an_array_of_another(part):
    """A write to one is seen by the other, whose storage is another one; where the memory is another, the graph runs."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return y + 1

    compiled = flambeau.compile(function)
    results = []
    for call in (function, compiled):
        x = torch.arange(6.0)
        shared = torch.from_numpy(x.numpy()[part])
        results.append([call(x, torch.ones(3)), call(x, shared), shared, call(x, shared.clone())])
    assert_same(results[1], results[0])
