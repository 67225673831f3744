"""One frame under symbolic execution: its stack, its locals and the loop that runs its instructions.

In: a code object, bound locals, cells. Out: `run()` gives the returned value; `resume`/`throw` run a generator up to its next yield.
Exceptions of the traced program (`TracedRaise`) are caught here by the instruction's handler, as CPython's exception table says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bytecode.normalise import decode_normalised
from ..class_names import objects_have
from ..signals import GraphBreak, TracedRaise
from ..values.base import NULL, Value
from ..values.constants import ConstantValue
from .registry import HANDLERS, Outcome

if TYPE_CHECKING:
    from types import CodeType

    from ..bytecode.model import Instruction
    from ..values.base import Tracer
    from ..values.functions import CellValue


Place = tuple[str, int, dict[str, Any]]
"""A file, a line of it, and the globals of the code there."""


class Frame:
    """State of one frame; `index` is the instruction being executed."""

    __slots__ = (
        "builtins",
        "caller",
        "cells",
        "code",
        "current_exceptions",
        "entered",
        "globals",
        "index",
        "instructions",
        "left_out",
        "locals",
        "next_index",
        "returned",
        "stack",
        "tracer",
        "yielded",
    )

    def __init__(
        self,
        tracer: Tracer,
        code: CodeType,
        globals: dict[str, Any],
        locals: dict[str, Value],
        cells: dict[str, CellValue],
        caller: Frame | None,
    ) -> None:
        self.tracer = tracer
        self.code = code
        self.globals = globals
        self.instructions = decode_normalised(code)
        self.locals = locals
        self.cells = cells
        self.stack: list[Value] = []
        self.index = 0
        self.next_index = 0
        self.caller = caller
        #: Files, lines and globals of calls between the caller and this one that plain Python makes and the trace does not, the innermost first.
        self.left_out: tuple[Place, ...] = ()
        self.current_exceptions: list[Value | None] = []
        self.returned: Value = ConstantValue(None)
        self.yielded: Value | None = None
        #: The `__exit__` of each manager of a `with` that was entered.
        self.entered: list[Value] = []

    # the stack

    def push(self, value: Value) -> None:
        """Push; lazy values are looked at now."""
        value = value.realise(self.tracer)
        self.stack.append(value)
        seen = self.tracer.repeated_calls.seen
        if seen is not None:
            seen.add(value)

    def pop(self) -> Value:
        """Pop the top."""
        return self.stack.pop()

    def pop_iterable(self) -> Value:
        """Pop what is taken apart; where it cannot be, Python finds the words, which depend on who takes it."""
        return self._pop_with("__iter__", "__getitem__")

    def pop_mapping(self) -> Value:
        """Pop what is given as `**`."""
        return self._pop_with("keys")

    def _pop_with(self, *names: str) -> Value:
        value = self.pop()
        if not any(objects_have(value.python_type(), name) for name in names):
            raise GraphBreak("unsupported-operation", f"taking {value.describe()} apart")
        return value

    def pop_many(self, count: int) -> list[Value]:
        """Pop `count` values, the deepest first."""
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    # running

    def run(self) -> Value:
        """Execute to the end; the returned value."""
        self.execute()
        return self.returned

    def resume(self, sent: Value | None) -> Value | None:
        """Run a generator to its next yield (None when it returned); `sent` is None at the start."""
        if sent is not None:
            self.push(sent)
        return self._continue()

    def throw(self, error: Value) -> Value | None:
        """Raise where a generator waits, then as `resume`."""
        if not self.unwind(self.instructions[self.index], error):
            raise TracedRaise(error)
        return self._continue()

    def _continue(self) -> Value | None:
        tracer = self.tracer
        before = tracer.frames.frame
        self.caller = before
        tracer.frames.frame = self
        try:
            return self.yielded if self.execute() is Outcome.YIELDED else None
        finally:
            tracer.frames.frame = before
            self.caller = None  # which may hold the generator

    def execute(self) -> Outcome:
        """The loop."""
        tracer = self.tracer
        instructions = self.instructions
        while True:
            self.index = self.next_index
            instruction = instructions[self.index]
            self.next_index = self.index + 1
            tracer.frames.step(self)
            handler = HANDLERS.get(instruction.name)
            if handler is None:
                raise GraphBreak("unsupported-instruction", f"instruction {instruction.name}")
            try:
                outcome = handler(self, instruction)
            except TracedRaise as error:
                tracer.exceptions.set_context(error.value)
                if not self.unwind(instruction, error.value):
                    raise
                continue
            if outcome is not None:
                return outcome

    def unwind(self, instruction: Instruction, error: Value) -> bool:
        """Go to the handler of an instruction that raised, if it has one."""
        handler = instruction.handler
        if handler is None:
            return False
        del self.stack[handler.depth :]
        if handler.lasti:
            self.stack.append(ConstantValue(self.index))
        self.stack.append(error)
        self.next_index = handler.target
        return True

    def jump(self, instruction: Instruction) -> None:
        """Go to the instruction's target."""
        assert instruction.target is not None
        self.next_index = instruction.target

    def push_callable(self, function: Value, owner: Value | None) -> None:
        """What LOAD_METHOD leaves."""
        from ..bytecode.behaviour import BEHAVIOUR

        if owner is not None:
            self.stack += [function, owner]
        elif BEHAVIOUR.null_below_callable:
            self.stack += [NULL, function]
        else:
            self.stack += [function, NULL]
