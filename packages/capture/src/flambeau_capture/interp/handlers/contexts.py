"""`with` blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...values.objects import TracebackValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    manager = f.pop()
    leave = f.tracer.get_attribute(manager, "__exit__")
    entered = f.tracer.call(f.tracer.get_attribute(manager, "__enter__"), [], {})
    f.push(leave)
    f.push(entered)


@handles("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    """The stack is `exit lasti previous exception`."""
    error = f.stack[-1]
    leave = f.stack[-4]
    f.push(f.tracer.call(leave, [f.tracer.wrap_pinned(error.python_type()), error, TracebackValue()], {}))
