"""Branches of which one way always raises: `assert (x > 0).all()`, `if bad.any(): raise ValueError(...)`, `assert x.sum().item()`.

In: a jump and what decides it, a tensor or a number that comes out of one. Out: the truth for which the program goes on, and a check in the graph
that it is the one; where neither way or each raises, the branch stays one. What the check raises nobody sees: a frame whose graph
raises runs in plain Python from its start, and there the program raises itself, with its words, after its effects, inside its handlers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..bytecode.flow import successors
from ..signals import GraphBreak
from ..values.constants import ConstantValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .conversions import as_truth

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bytecode.model import Instruction
    from ..values.base import Tracer, Value
    from .frame import Frame

_JUMPS = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
_LEAVES = frozenset(("RETURN_VALUE", "YIELD_VALUE"))
_MESSAGE = "a branch of the program goes the way that raises"


def truth_or_raise(f: Frame, value: Value) -> bool:
    """The truth of what decides the conditional jump that the frame is at: where one side raises, a number's is assumed as a tensor's is."""
    try:
        return truth_of_jump(f, f.index, value)
    except GraphBreak as error:
        if error.code != "data-dependent-branch":
            raise
        if (known := f.tracer.hit_loops.truth(value)) is not None:
            return known
        goes_on = side_that_goes_on(f, f.index)
        condition = None if goes_on is None else as_truth(f.tracer, value)
        if condition is not None and not goes_on:
            negated = f.tracer.arithmetic.symbolic(torch.sym_not, [condition])
            condition = negated if isinstance(negated, SymbolicValue) else None
        if condition is None or goes_on is None:
            raise
        f.tracer.graph.check(condition.node, condition.symbol)
        return goes_on


def truth_of_jump(f: Frame, index: int, value: Value) -> bool:
    """The truth of what decides the jump at `index`: a tensor's is assumed where the other one raises, and checked by the graph."""
    is_asked = isinstance(value, TensorValue) and _is_decided_on_the_host(value) and not f.tracer.graph.bodies
    assumed = side_that_goes_on(f, index) if is_asked else None
    if assumed is None:
        return value.truth(f.tracer)
    assert isinstance(value, TensorValue)
    t = f.tracer
    t.members.refuse_patched(value, "__bool__")
    t.frames.caught = t.graph.assumes = True
    checked = value if assumed else t.recorder.record("call_function", torch.logical_not, [value], {})
    t.recorder.record("call_function", torch._assert_async, [checked, ConstantValue(_MESSAGE)], {})
    return assumed


def truth_of_argument(t: Tracer, value: Value) -> bool:
    """The truth that a builtin is asked for (`bool`, `all`, `any`), of which most likely the next instruction is a jump."""
    frame = t.frames.frame
    return truth_of_jump(frame, frame.index + 1, value)


def is_assumed(t: Tracer, value: TensorValue) -> bool:
    """Whether `truth_of_argument` knows a tensor's truth by what the next instruction does with it."""
    frame = t.frames.frame
    return (
        not t.graph.bodies and _is_decided_on_the_host(value) and side_that_goes_on(frame, frame.index + 1) is not None
    )


def _is_decided_on_the_host(value: TensorValue) -> bool:
    """Whether it is one element, which an assert may look at: on a GPU an assert that fails ends all that the process does there."""
    return value.fake.device.type == "cpu" and all(type(size) is int and size == 1 for size in value.fake.shape)


def side_that_goes_on(f: Frame, index: int) -> bool | None:
    """The truth for which a conditional jump goes on, where the other side always raises; None where that is so of neither side or of both."""
    jump = f.instructions[index] if index < len(f.instructions) else None
    if jump is None or jump.name not in _JUMPS or jump.target is None:
        return None
    taken, passed = (_always_raises(f.instructions, start) for start in (jump.target, index + 1))
    if taken == passed:
        return None
    return passed == (jump.name == "POP_JUMP_IF_TRUE")


def _always_raises(instructions: Sequence[Instruction], start: int) -> bool:
    """Whether each way from an instruction ends in a `raise`, handlers of the frame left out."""
    seen: set[int] = set()
    todo = [start]
    raises = False
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        name = instructions[index].name
        if name in _LEAVES:
            return False
        raises |= name == "RAISE_VARARGS"
        todo.extend(successors(instructions, index))
    return raises
