"""`with` blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...class_names import objects_have, type_name
from ...values.objects import ObjectValue, TracebackValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ...values.base import Tracer, Value
    from ..frame import Frame


@handles("BEFORE_WITH")
def before_with(f: Frame, i: Instruction) -> None:
    manager = f.pop()
    enter = _of_class(f.tracer, manager, "__enter__", "")
    leave = _of_class(f.tracer, manager, "__exit__", " (missed __exit__ method)")
    f.push(leave)
    f.entered.append(f.stack[-1])
    f.push(f.tracer.caller.call(enter, [], {}))


def _of_class(t: Tracer, manager: Value, name: str, missed: str) -> Value:
    """A method as its class has it: neither the object's own attributes nor its `__getattr__` are asked."""
    found = manager.special(t, name) if isinstance(manager, ObjectValue) else None
    if found is not None:
        return found
    cls = manager.python_type()
    if not objects_have(cls, name):
        raise t.exceptions.raised(
            TypeError(f"'{type_name(cls)}' object does not support the context manager protocol{missed}")
        )
    return t.attributes.get_attribute(manager, name)


@handles("WITH_EXCEPT_START")
def with_except_start(f: Frame, i: Instruction) -> None:
    """The stack is `exit lasti previous exception`."""
    error = f.stack[-1]
    leave = f.stack[-4]
    f.push(
        f.tracer.caller.call(leave, [f.tracer.wrapper.wrap_pinned(error.python_type()), error, TracebackValue()], {})
    )
