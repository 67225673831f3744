"""Jumps and loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..assumed_branches import truth_or_raise
from ..registry import Outcome, handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("JUMP", "JUMP_NO_INTERRUPT")
def jump(f: Frame, i: Instruction) -> None:
    f.jump(i)


@handles("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump_if(f: Frame, i: Instruction) -> None:
    value = f.stack[-1]
    truth = truth_or_raise(f, value)
    f.stack.pop()
    if truth == (i.name == "POP_JUMP_IF_TRUE"):
        f.jump(i)


@handles("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(f: Frame, i: Instruction) -> None:
    value = f.pop()
    is_none = value.is_constant() and value.constant() is None
    if is_none == (i.name == "POP_JUMP_IF_NONE"):
        f.jump(i)


@handles("GET_ITER")
def get_iter(f: Frame, i: Instruction) -> None:
    t, value = f.tracer, f.pop().realise(f.tracer)
    f.push(t.hit_loops.iterate(f, value) or value.iterate(t))


@handles("FOR_ITER")
def for_iter(f: Frame, i: Instruction) -> None:
    item = f.stack[-1].next(f.tracer)
    if item is None:
        f.pop()
        f.jump(i)
    else:
        f.push(item)


@handles("RETURN_VALUE")
def return_value(f: Frame, i: Instruction) -> Outcome:
    f.returned = f.pop()
    return Outcome.RETURNED
