"""The end of a frame that was traced up to an instruction which has to run for real.

In: a `Break` and an emitter at the point where the graph ran. Out: instructions that restore the locals the rest needs, run the
instruction on real operands, and return what the resume function of the way it took returns: one for going on, one for jumping,
one for the handler that would have caught an exception of the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CellType, CodeType

from attrs import field, frozen

from ..bytecode.behaviour import BEHAVIOUR
from ..bytecode.flow import falls_through
from ..bytecode.liveness import live_locals
from ..bytecode.model import Instruction, Label, Protect
from ..bytecode.normalise import decode_normalised
from ..bytecode.stack_depth import StackEffect, UnknownInstructionError, effect
from ..graph.captured import Break
from ..values.base import NullValue, Value
from .emitter import Emitter
from .resume import FIRST_ARGUMENT, CannotResume, Slot, first_argument, resume_code, sees_locals, stack_parameter
from .values import handled_exception

_BOUND_METHOD = {"LOAD_METHOD": "LOAD_ATTR", "LOAD_SUPER_METHOD": "LOAD_SUPER_ATTR"}
_NO_STATE = frozenset({"RERAISE"})
"""Instructions that do not look at the exception being handled, and never go on."""
_MOVES_STATE = frozenset({"POP_EXCEPT", "PUSH_EXC_INFO", "SWAP", "COPY", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"})
"""Instructions that never break; cut there, the exception state or a raw slot would have to be moved."""


@frozen(eq=False)
class _Kept:
    """A stack slot for a resume function: a value, or a variable of the replaced frame that holds it."""

    slot: Slot
    value: Value | None = None
    variable: str | None = None


@frozen(eq=False)
class BreakPoint:
    """A break, analysed: which locals the ways out need, what stays on the stack."""

    code: CodeType
    exit: Break
    instruction: Instruction
    effect: StackEffect
    needed: tuple[str, ...] = field(default=())

    @property
    def operands(self) -> tuple[Value, ...]:
        """Stack slots the instruction works on."""
        return self.exit.stack[len(self.exit.stack) - self.effect.pops :]

    @property
    def below(self) -> tuple[Value, ...]:
        """Stack slots under the operands."""
        return self.exit.stack[: len(self.exit.stack) - self.effect.pops]

    def values(self) -> list[Value]:
        """Every value that has to be made before anything is changed."""
        found = []
        for value in self.exit.stack:
            handled = handled_exception(value)
            if handled is not None:
                found.append(handled)
            elif not isinstance(value, NullValue):
                found.append(value)
        return [*found, *(self.exit.locals[name] for name in self.needed if name in self.exit.locals)]


def analyse(code: CodeType, exit_: Break) -> BreakPoint:
    """Look at where the frame is cut. Raises CannotResume where it cannot be."""
    instructions = decode_normalised(code)
    instruction = instructions[exit_.instruction]
    try:
        what = effect(instruction)
    except UnknownInstructionError:
        raise CannotResume(f"{instruction.name} suspends the frame") from None
    if instruction.name in _MOVES_STATE:
        raise CannotResume(f"{instruction.name} cannot be run apart from its frame")
    if what.pops > len(exit_.stack):
        raise CannotResume(f"{instruction.name} needs {what.pops} stack slots, {len(exit_.stack)} are there")
    return BreakPoint(code, exit_, instruction, what, _needed(code, exit_, instructions))


def _needed(code: CodeType, exit_: Break, instructions: Sequence[Instruction]) -> tuple[str, ...]:
    """Locals to restore, in the order of the frame's variables; cells always."""
    cells = code.co_cellvars
    plain = [name for name in code.co_varnames if name not in cells and name not in code.co_freevars]
    if sees_locals(code):
        return (*(name for name in plain if name in exit_.locals), *cells)
    wanted = set(live_locals(instructions)[exit_.instruction])
    first = first_argument(code, exit_.instruction)
    if first is not None and first not in cells:
        wanted.add(first)
        if first not in exit_.locals:
            raise CannotResume("super() needs the first argument, which was deleted")
    return (*(name for name in plain if name in wanted and name in exit_.locals), *cells)


def emit_break(e: Emitter, point: BreakPoint) -> None:
    """Emit the whole way out; all of `point.values()` are prepared, and effects are replayed."""
    i = point.instruction
    e.position = i.position
    _restore_variables(e, point)
    handled = [] if i.name in _NO_STATE else [h for v in point.exit.stack if (h := handled_exception(v)) is not None]
    for exception in handled:
        e.value(exception)
        e.op("PUSH_EXC_INFO")
        e.pop()
    _Ways(e, point, len(handled)).emit()


def _restore_variables(e: Emitter, point: BreakPoint) -> None:
    locals_ = point.exit.locals
    for name in point.needed:
        if name in locals_:
            e.value(locals_[name])
        else:
            e.pinned(CellType)
            e.call(0)
        e.op("STORE_FAST", value=name)
    if sees_locals(point.code):
        count = point.code.co_argcount + point.code.co_kwonlyargcount
        count += bool(point.code.co_flags & 4) + bool(point.code.co_flags & 8)
        for name in point.code.co_varnames[:count]:
            if name not in locals_ and name not in point.code.co_cellvars:
                e.op("DELETE_FAST", value=name)


class _Ways:
    """The instruction itself and the ways it can go. `handled` slots of exception state lie under its operands meanwhile."""

    def __init__(self, e: Emitter, point: BreakPoint, handled: int) -> None:
        self.e = e
        self.point = point
        self.handled = handled
        self.below = [_keep(value) for value in point.below]

    def emit(self) -> None:
        e, i = self.e, self.point.instruction
        caught = Label("caught") if i.handler is not None or self.handled else None
        jumped = Label("jumped") if i.target is not None else None
        self._push_operands()
        e.protect = Protect(caught, self.handled, False) if caught is not None else None
        self._run(jumped)
        e.protect = None
        if falls_through(i):
            self._go_on(self.point.effect.pushes, self.point.exit.instruction + 1)
        if jumped is not None and i.target is not None:
            e.place(jumped)
            self._go_on(self.point.effect.jump_pushes, i.target)
        if caught is not None:
            e.place(caught)
            self._catch()

    def _push_operands(self) -> None:
        i = self.point.instruction
        operands = self.point.operands
        if i.name == "RERAISE":
            operands = operands[-1:]
        for operand in operands:
            if handled_exception(operand) is not None:
                self.e.const(None)
            else:
                self.e.value(operand)

    def _run(self, jumped: Label | None) -> None:
        e, i = self.e, self.point.instruction
        if i.name in ("JUMP", "JUMP_NO_INTERRUPT"):
            assert jumped is not None
            e.jump(jumped)
        elif i.name == "RERAISE":
            e.op("RERAISE", 0)
        elif i.name in _BOUND_METHOD:
            e.op(_BOUND_METHOD[i.name], i.arg, i.value)
        else:
            e.op(i.name, i.arg, i.value, jumped)

    def _results(self, pushes: int) -> list[_Kept]:
        """Move what the instruction left into variables; slots it only looked at are kept as they were."""
        e, i = self.e, self.point.instruction
        if i.name in _BOUND_METHOD:
            bound = _Kept(Slot.VALUE, variable=self._store())
            return [_NULL, bound] if BEHAVIOUR.null_below_callable else [bound, _NULL]
        operands = self.point.operands
        kept: list[_Kept] = []
        for at in range(pushes - 1, -1, -1):
            held = _keep(operands[at]) if at < min(len(operands), pushes) and _is_odd(operands[at]) else None
            if held is not None:
                e.pop()
                kept.append(held)
            else:
                kept.append(_Kept(Slot.VALUE, variable=self._store()))
        return kept[::-1]

    def _store(self) -> str:
        name = self.e.temp()
        self.e.store_local(name)
        return name

    def _go_on(self, pushes: int, target: int) -> None:
        results = self._results(pushes)
        for _ in range(self.handled):
            self.e.op("POP_EXCEPT")
        self._resume(target, [*self.below, *results])

    def _catch(self) -> None:
        """The exception is on top of the exception state that was pushed."""
        e, handler = self.e, self.point.instruction.handler
        exception = self._store()
        for _ in range(self.handled):
            e.op("POP_EXCEPT")
        if handler is None:
            e.local(exception)
            e.op("DELETE_FAST", value=exception)
            e.op("RERAISE", 0)
            return
        slots = [_keep(value) for value in self.point.exit.stack[: handler.depth]]
        if len(slots) < handler.depth:
            raise CannotResume("a handler expects more stack than there is")
        if handler.lasti:
            place = e.temp()
            e.const(0)
            e.store_local(place)
            slots.append(_Kept(Slot.VALUE, variable=place))
        self._resume(handler.target, [*slots, _Kept(Slot.VALUE, variable=exception)])

    def _resume(self, target: int, slots: list[_Kept]) -> None:
        """Call the rest of the function and return its result; a rest that only returns is done here."""
        e = self.e
        instructions = decode_normalised(self.point.code)
        if instructions[target].name == "RETURN_VALUE":
            self._push(slots[-1])
            e.ret()
            return
        if instructions[target].name == "LOAD_CONST" and instructions[target + 1].name == "RETURN_VALUE":
            e.const(instructions[target].value)
            e.ret()
            return
        made = resume_code(self.point.code, target, tuple(kept.slot for kept in slots), self._passed(target, instructions))
        if made.free:
            for name in made.free:
                e.op("LOAD_CLOSURE", value=name)
            e.build("tuple", len(made.free))
        e.const(made.code)
        e.op("MAKE_FUNCTION", 8 if made.free else 0)
        for parameter in made.parameters:
            self._argument(parameter, slots)
        e.call(len(made.parameters))
        e.ret()

    def _argument(self, parameter: str, slots: list[_Kept]) -> None:
        for at, kept in enumerate(slots):
            if parameter == stack_parameter(at):
                self._push(kept)
                return
        if parameter == FIRST_ARGUMENT:
            self.e.op("LOAD_DEREF", value=self.point.code.co_varnames[0])
        else:
            self.e.op("LOAD_FAST", value=parameter)

    def _push(self, kept: _Kept) -> None:
        if kept.variable is not None:
            self.e.local(kept.variable)
            self.e.op("DELETE_FAST", value=kept.variable)
        elif kept.value is not None:
            self.e.value(kept.value)
        else:
            raise CannotResume("a NULL cannot be passed on")

    def _passed(self, target: int, instructions: Sequence[Instruction]) -> tuple[str, ...]:
        """The locals that are bound after the instruction and that the rest may read."""
        point = self.point
        i = point.instruction
        bound = {name for name in point.needed if name not in point.code.co_cellvars}
        if i.name == "STORE_FAST" and i.value not in point.code.co_cellvars:
            bound.add(i.value)
        elif i.name == "DELETE_FAST":
            bound.discard(i.value)
        if not sees_locals(point.code):
            first = first_argument(point.code, target)
            bound &= live_locals(instructions)[target] | ({first} if first is not None else set())
        return tuple(name for name in point.code.co_varnames if name in bound)


_NULL = _Kept(Slot.NULL)


def _is_odd(value: Value) -> bool:
    return isinstance(value, NullValue) or handled_exception(value) is not None


def _keep(value: Value) -> _Kept:
    if isinstance(value, NullValue):
        return _NULL
    handled = handled_exception(value)
    if handled is not None:
        return _Kept(Slot.HANDLED, handled)
    return _Kept(Slot.VALUE, value)
