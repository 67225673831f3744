"""Stack movements and constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.base import NULL
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("POP_TOP")
def pop_top(f: Frame, i: Instruction) -> None:
    f.pop()


@handles("COPY")
def copy(f: Frame, i: Instruction) -> None:
    f.stack.append(f.stack[-i.arg])


@handles("SWAP")
def swap(f: Frame, i: Instruction) -> None:
    f.stack[-1], f.stack[-i.arg] = f.stack[-i.arg], f.stack[-1]


@handles("PUSH_NULL")
def push_null(f: Frame, i: Instruction) -> None:
    f.stack.append(NULL)


@handles("LOAD_CONST")
def load_const(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.wrapper.from_constant(i.value))


@handles("LOAD_ASSERTION_ERROR")
def load_assertion_error(f: Frame, i: Instruction) -> None:
    f.push(f.tracer.wrapper.wrap_pinned(AssertionError))
