"""Raising, catching and matching exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...signals import GraphBreak, TracedRaise
from ...values.base import MISSING
from ...values.constants import ConstantValue
from ...values.objects import ExceptionValue
from ..registry import handles

if TYPE_CHECKING:
    from ...bytecode.model import Instruction
    from ..frame import Frame


@handles("RAISE_VARARGS")
def raise_varargs(f: Frame, i: Instruction) -> None:
    t = f.tracer
    if i.arg == 0:
        current = t.exceptions.current_exception()
        if current is None:
            t.exceptions.none_handled_outside("raise without an exception")
            raise t.exceptions.raised(RuntimeError("No active exception to reraise"))
        raise TracedRaise(current)
    cause = f.pop() if i.arg == 2 else None
    error = t.exceptions.exception_instance(f.pop())
    if error.real() is not MISSING and (cause is not None or t.exceptions.current_exception() not in (None, error)):
        raise GraphBreak("unsupported-store", "raising an exception that existed before, with a new cause or context")
    if cause is not None and isinstance(error, ExceptionValue):
        error.cause = t.exceptions.cause_of(cause)
    t.exceptions.raise_anew(error)
    raise TracedRaise(error)


@handles("RERAISE")
def reraise(f: Frame, i: Instruction) -> None:
    raise TracedRaise(f.pop())


@handles("PUSH_EXC_INFO")
def push_exc_info(f: Frame, i: Instruction) -> None:
    error = f.pop()
    previous = f.current_exceptions[-1] if f.current_exceptions else None
    f.current_exceptions.append(error)
    f.push(previous if previous is not None else ConstantValue(None))
    f.push(error)


@handles("POP_EXCEPT")
def pop_except(f: Frame, i: Instruction) -> None:
    previous = f.pop()
    while f.current_exceptions:
        f.current_exceptions.pop()
        top = f.current_exceptions[-1] if f.current_exceptions else None
        if top is previous or (top is None and previous.is_constant()):
            break


@handles("CHECK_EXC_MATCH")
def check_exc_match(f: Frame, i: Instruction) -> None:
    wanted = f.pop()
    asked = f.tracer.caller.class_or_tuple(wanted)
    classes = asked if isinstance(asked, tuple) else (asked,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in classes):
        raise f.tracer.exceptions.raised(
            TypeError("catching classes that do not inherit from BaseException is not allowed")
        )
    # By ancestors alone: no metaclass is asked.
    f.push(ConstantValue(any(one in f.stack[-1].python_type().__mro__ for one in classes)))


@handles("CHECK_EG_MATCH", "PREP_RERAISE_STAR")
def exception_groups(f: Frame, i: Instruction) -> None:
    raise GraphBreak("unsupported-instruction", "except* is used")
