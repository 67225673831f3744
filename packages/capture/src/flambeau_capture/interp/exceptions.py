"""Exceptions of the traced program: how one is made, and which one it came after.

In: classes, arguments and exceptions as values. Out: the exception with the class, `args`, line and context that Python gives it, or a break.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import torch

from ..class_names import class_name, full_name
from ..signals import GraphBreak, TracedRaise
from ..values.base import MISSING, Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.members import mro_lookup
from ..values.objects import EXCEPTIONS_WITH_FIELDS, ExceptionValue
from .frame import Frame
from .part import Part
from .wrapping import NotConstant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values.base import Tracer


class Exceptions(Part):
    """Exceptions that the traced program raises and handles."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        #: Whether a caller of the root frame is handling an exception.
        self.handled_outside = sys.exc_info()[1] is not None

    def raised(self, error: BaseException, value: Value | None = None) -> TracedRaise:
        """The traced counterpart of raising `error`; `raise t.exceptions.raised(...)`."""
        arguments = [
            ConstantValue(str(a)) if isinstance(a, torch.Tensor) else self.t.wrapper.from_python(a) for a in error.args
        ]
        if value is not None:
            arguments = [value]
        made = ExceptionValue(type(error), arguments)
        if isinstance(error, EXCEPTIONS_WITH_FIELDS):
            made.keep_fields(self.t, error)
        # What an `__init__` in Python has stored.
        made.attrs.update({name: self.t.wrapper.from_python(held) for name, held in vars(error).items()})
        return TracedRaise(made)

    def make_exception(self, cls: type, args: Sequence[Value]) -> Value:
        """Which class it has (`OSError` goes by the error's number) and what its `args` are, a native class with fields decides."""
        if not issubclass(cls, EXCEPTIONS_WITH_FIELDS):
            return ExceptionValue(cls, list(args))
        if has_python_init(cls):
            raise GraphBreak("unsupported-call", f"constructing {full_name(cls)}")
        takes_all = (ImportError, SystemExit, StopIteration)
        if issubclass(cls, takes_all) or (issubclass(cls, (OSError, SyntaxError)) and len(args) < 2):
            return ExceptionValue(cls, list(args))
        try:
            given = [self.t.wrapper.to_python(arg) for arg in args]
        except NotConstant as error:
            raise GraphBreak("unsupported-call", f"{class_name(cls)} of {error}") from None
        try:
            made = cls(*given)
        except Exception as error:
            raise self.raised(error) from None
        if len(made.args) != len(args):
            raise GraphBreak("unsupported-call", f"{class_name(cls)} that keeps an argument apart")
        return ExceptionValue(type(made), list(args))

    def exception_instance(self, value: Value, what: str = "exceptions") -> Value:
        """What `raise value` raises, or with another word for it in the error what is given as its cause."""
        if isinstance(value, ClassValue):
            value = self.t.caller.call(value, [], {})
        if not issubclass(value.python_type(), BaseException):
            raise self.raised(TypeError(f"{what} must derive from BaseException"))
        return value

    def cause_of(self, value: Value) -> Value:
        """What `raise error from value` notes as the cause: None is one too."""
        if value.is_constant() and value.constant() is None:
            return value
        return self.exception_instance(value, "exception causes")

    def set_context(self, error: Value) -> None:
        """Note where `error`, made by the trace, was raised first, and which exception was being handled then."""
        if not isinstance(error, ExceptionValue) or error.real() is not MISSING:
            return
        if error.line is None:
            frame = self.t.frames.frame
            while frame.caller is not None:
                frame = frame.caller
            error.line = frame.instructions[frame.index].position.line
        if error.context is None:
            current = self.current_exception()
            if current is not error:
                error.context = current

    def raise_anew(self, error: Value) -> None:
        """Note it for a `raise` of an exception, which may have been raised before: as CPython, with no way back in what it comes after."""
        current = self.current_exception()
        if current is None and (error.real() is not MISSING or getattr(error, "context", None) is not None):
            self.none_handled_outside("raising an exception that was raised before")
        if not isinstance(error, ExceptionValue) or error.real() is not MISSING or current in (None, error):
            return
        later, seen = current, {id(current)}
        while isinstance(later, ExceptionValue) and later.context is not None:
            if later.context is error:
                later.context = ConstantValue(None)
                break
            later = later.context
            if id(later) in seen:
                break
            seen.add(id(later))
        error.context = current

    def none_handled_outside(self, what: str) -> None:
        """What goes on holds while no caller of the frame handles an exception, which would be the context of those raised here."""
        if self.handled_outside:
            raise GraphBreak("unsupported-operation", f"{what}, while a caller handles an exception")
        self.t.guards.answer(sys.exception, (), {}, None)

    def current_exception(self) -> Value | None:
        """The exception being handled, in this frame or a caller."""
        frame: Frame | None = self.t.frames.frame
        while frame is not None:
            if frame.current_exceptions and frame.current_exceptions[-1] is not None:
                return frame.current_exceptions[-1]
            frame = frame.caller
        return None


def has_python_init(cls: type) -> bool:
    init, _ = mro_lookup(cls, "__init__")
    return isinstance(init, types.FunctionType)
