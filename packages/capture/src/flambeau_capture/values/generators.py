"""`GeneratorValue`: a generator that the traced program made; its frame waits where it yielded.

In: a frame of the interpreter. Out: `send` and `throw` run it to its next yield.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak, TracedRaise
from .base import Value
from .builtins import ClassValue
from .constants import ConstantValue
from .iterators import IteratorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .base import Tracer

_COMPILER_MADE = frozenset({"CALL_INTRINSIC_1", "CLEANUP_THROW"})
#: What a handler does that takes no error, beside asking for the classes of those that it takes.
_PASSED_ON = frozenset({"PUSH_EXC_INFO", "BUILD_TUPLE", "COPY", "POP_EXCEPT", "NOP"})


class GeneratorValue(IteratorValue):
    """A suspended frame."""

    __slots__ = ("done", "frame", "origin", "started")

    def __init__(self, frame: Any) -> None:
        super().__init__()
        self.frame = frame
        self.started = False
        self.done = False
        self.origin: tuple[Value, Sequence[Value], Mapping[str, Value]] | None = None

    def rebuild(self, e: Any) -> None:
        if self.started or self.done or self.origin is None:
            super().rebuild(e)
            return
        function, args, kwargs = self.origin
        e.value(function)
        for value in (*args, *kwargs.values()):
            e.value(value)
        e.call(len(args) + len(kwargs), tuple(kwargs))

    def python_type(self) -> type:
        from types import GeneratorType

        return GeneratorType

    def next(self, t: Tracer) -> Value | None:
        return self.send(t, ConstantValue(None))

    def advance(self, t: Tracer, value: Value | None = None) -> Value:
        found = self.send(t, value or ConstantValue(None))
        if found is None:
            raise t.exceptions.raised(StopIteration(), value=self.frame.returned)
        return found

    def send(self, t: Tracer, value: Value) -> Value | None:
        """Resume; None when the generator returned (its value is in `frame.returned`)."""
        self._refuse_running(t)
        if self.done:
            return None
        if not self.started:
            t.generators.append(self)
        try:
            yielded = self.frame.resume(value if self.started else None)
        except TracedRaise as error:
            self.done = True
            raise _left_by(t, error) from None
        self.started = True
        if yielded is None:
            self.done = True
        return yielded

    def _refuse_running(self, t: Tracer) -> None:
        """Raise where the generator's own code, or what that called, resumes it."""
        frame: Any | None = t.frames.frame
        while frame is not None and frame is not self.frame:
            frame = frame.caller
        if frame is not None:
            raise t.exceptions.raised(ValueError("generator already executing"))

    def has_more_to_do(self) -> bool:
        """Whether Python, once nobody holds it any more, would run the rest of a `with` or `try` that it waits in."""
        if not self.started or self.done:
            return False
        instructions = self.frame.instructions
        handler = instructions[self.frame.index].handler
        while handler is not None:
            raises_again = self._raises_again(handler.target)
            if raises_again is None:
                return True
            handler = instructions[raises_again].handler
        return False

    def _raises_again(self, index: int) -> int | None:
        """Where the handler that begins at `index` raises the GeneratorExit again that ends the generator; None where it does something else."""
        instructions = self.frame.instructions
        if instructions[index].name in _COMPILER_MADE:
            return index
        takes = False
        while instructions[index].name != "RERAISE":
            instruction = instructions[index]
            if instruction.name == "LOAD_GLOBAL":
                takes |= self._takes_the_end(instruction.value)
            elif (
                instruction.name == "POP_JUMP_IF_FALSE"
                and instructions[index - 1].name == "CHECK_EXC_MATCH"
                and not takes
            ):
                index = instruction.target
                continue
            elif instruction.name not in _PASSED_ON and instruction.name != "CHECK_EXC_MATCH":
                return None
            index += 1
        return index

    def _takes_the_end(self, name: str) -> bool:
        """Whether what an `except` names may be a class of GeneratorExit: all but classes of Python's own that are not."""
        found = self.frame.tracer.attributes.load_global(self.frame.globals, name).realise(self.frame.tracer)
        cls: Any = vars(builtins).get(name)
        return not isinstance(found, ClassValue) or cls is not found.object or issubclass(GeneratorExit, cls)

    def throw(self, t: Tracer, error: Value) -> Value | None:
        """Raise at the point where the generator waits."""
        self._refuse_running(t)
        if self.done or not self.started:
            self.done = True
            raise TracedRaise(error)
        try:
            yielded = self.frame.throw(error)
        except TracedRaise as raised:
            self.done = True
            raise _left_by(t, raised) from None
        if yielded is None:
            self.done = True
        return yielded

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "send":
            if not (self.started or self.done or (args[0].is_constant() and args[0].constant() is None)):
                raise t.exceptions.raised(TypeError("can't send non-None value to a just-started generator"))
            return self.advance(t, args[0])
        if name == "throw":
            found = self.throw(t, _thrown(t, args))
            if found is None:
                raise t.exceptions.raised(StopIteration(), value=self.frame.returned)
            return found
        if name == "close":
            self.close(t)
            return ConstantValue(None)
        return super().call_method(t, name, args, kwargs)

    def close(self, t: Tracer) -> None:
        """GeneratorExit at the point where it waits."""
        if self.done:
            return
        if not self.started:
            self.done = True
            return
        leaving = t.exceptions.raised(GeneratorExit()).value
        try:
            if self.throw(t, leaving) is not None:
                raise GraphBreak("unsupported-operation", "a generator that ignores GeneratorExit")
        except TracedRaise as error:
            if error.value is not leaving and not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                raise
        self.done = True


def _left_by(t: Tracer, error: TracedRaise) -> TracedRaise:
    """What the caller of a generator sees when an exception leaves it."""
    if not issubclass(error.value.python_type(), StopIteration):
        return error
    made = t.exceptions.raised(RuntimeError("generator raised StopIteration"))
    made.value.cause = made.value.context = error.value
    return made


def _thrown(t: Tracer, args: Sequence[Value]) -> Value:
    """What `throw(error)` raises, or `throw(class, error, traceback)`, as `contextlib` of Python 3.11 says it."""
    kind, *more = args
    if not more or (more[0].is_constant() and more[0].constant() is None):
        return t.exceptions.exception_instance(kind)
    if not isinstance(kind.real(), type) or not issubclass(more[0].python_type(), kind.real()):
        raise GraphBreak("unsupported-operation", "throw() with an error that is to be made of its second argument")
    return more[0]
