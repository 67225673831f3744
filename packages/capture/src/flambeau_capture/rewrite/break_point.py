"""The end of a frame that was traced up to an instruction which has to run for real.

In: a `Break` and an emitter at the point where the graph ran. Out: instructions that restore the locals the rest needs, run the
instruction on real operands, and return what the resume function of the way it took returns: one for going on, one for jumping,
one for the handler that would have caught an exception of the instruction.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from types import CellType, CodeType, TracebackType

from attrs import field, frozen

from ..bytecode.behaviour import BEHAVIOUR
from ..bytecode.encode import argument_names
from ..bytecode.flow import falls_through, reachable
from ..bytecode.liveness import live_locals, written_locals
from ..bytecode.model import Instruction, Label, Protect
from ..bytecode.normalise import decode_normalised
from ..bytecode.stack_depth import StackEffect, UnknownInstructionError, effect, exception_slots
from ..captured import Break
from ..native import _C
from ..sources.arguments import FIRST
from ..sources.source import Local
from ..values.base import NullValue, Value
from ..values.generators import GeneratorValue
from ..values.lazy import LazyValue
from .emitter import Emitter
from .resume import CannotResume, Slot, first_argument, resume_code, sees_locals

_BOUND_METHOD = {"LOAD_METHOD": "LOAD_ATTR", "LOAD_SUPER_METHOD": "LOAD_SUPER_ATTR"}
_UNCUTTABLE = frozenset({"POP_EXCEPT", "PUSH_EXC_INFO", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"})
"""Instructions that never break; cut there, the exception state or a raw slot would have to be moved."""


@frozen(eq=False)
class Place:
    """A stack slot at the break. For `Slot.HANDLED`, `value` is the exception being handled."""

    slot: Slot
    value: Value


@frozen(eq=False)
class Held:
    """A stack slot for a resume function, in a variable of the replaced frame."""

    slot: Slot
    variable: str = ""


@frozen(eq=False)
class BreakPoint:
    """A break, analysed: what the stack holds, and which locals the ways out need."""

    code: CodeType
    exit: Break
    instruction: Instruction
    effect: StackEffect
    stack: tuple[Place, ...]
    needed: tuple[str, ...] = field(default=())

    def values(self) -> list[Value]:
        """Every value that has to be made before anything is changed."""
        locals_ = self.exit.locals
        found = [*(place.value for place in self.stack), *(locals_[name] for name in self.needed if name in locals_)]
        found.extend(context for exception in self.exceptions() for context in _contexts(exception))
        return found

    def exceptions(self) -> list[Value]:
        """Exceptions that the program handles or passes on at the break; they must look as if they had been raised."""
        found = [place.value for place in self.stack if place.slot is Slot.HANDLED]
        if self.instruction.name == "RERAISE":
            found.append(self.stack[-1].value)
        return found


def analyse(code: CodeType, exit_: Break) -> BreakPoint:
    """Look at where the frame is cut. Raises CannotResume where it cannot be."""
    instructions = decode_normalised(code)
    instruction = instructions[exit_.instruction]
    try:
        what = effect(instruction)
    except UnknownInstructionError:
        raise CannotResume(f"{instruction.name} suspends the frame") from None
    if any(found.name == "DELETE_DEREF" and found.value in code.co_cellvars for found in instructions):
        raise CannotResume(
            "a variable of inner functions is deleted: to a resume function it would be one of an outer function"
        )
    if instruction.name in _UNCUTTABLE:
        raise CannotResume(f"{instruction.name} cannot be run apart from its frame")
    if what.pops > len(exit_.stack):
        raise CannotResume(f"{instruction.name} needs {what.pops} stack slots, {len(exit_.stack)} are there")
    return BreakPoint(code, exit_, instruction, what, _stack(code, exit_), needed_locals(code, exit_))


def _stack(code: CodeType, exit_: Break) -> tuple[Place, ...]:
    """What the slots hold. The innermost slots of exception state may be spent already: those are plain values."""
    marked = exception_slots(code)[exit_.instruction]
    if len(exit_.handled) > len(marked):
        raise CannotResume("more exceptions are being handled than the stack says")
    handled = dict(zip(marked, exit_.handled, strict=False))
    return tuple(
        Place(Slot.NULL, value)
        if isinstance(value, NullValue)
        else Place(Slot.HANDLED, handled[at])
        if at in handled
        else Place(Slot.VALUE, value)
        for at, value in enumerate(exit_.stack)
    )


def needed_locals(code: CodeType, exit_: Break) -> tuple[str, ...]:
    """Locals to restore, in the order of the frame's variables: those that the rest may read, and all cells.

    Free variables are restored where the break names them. Locals that are not listed are dead: nothing has to be made for them.
    """
    instructions = decode_normalised(code)
    cells = (*code.co_cellvars, *(name for name in code.co_freevars if name in exit_.locals))
    plain = [name for name in code.co_varnames if name not in code.co_cellvars and name not in code.co_freevars]
    if sees_locals(code):
        return (*(name for name in plain if name in exit_.locals), *cells)
    wanted = set(live_locals(instructions)[exit_.instruction])
    wanted.update(name for name in plain if _is_new_generator(exit_.locals.get(name)))
    first = first_argument(code, exit_.instruction)
    if first is not None and first not in cells:
        wanted.add(first)
        if first not in exit_.locals:
            raise CannotResume("super() needs the first argument, which was deleted")
    return (*(name for name in plain if name in wanted and name in exit_.locals), *cells)


def _is_new_generator(value: Value | None) -> bool:
    """Whether a variable holds a generator that the break may start: it is ended, and cleans up, when the function returns and not before."""
    if isinstance(value, LazyValue):
        value = value.realised
    return isinstance(value, GeneratorValue) and not (value.started or value.done)


def emit_break(e: Emitter, point: BreakPoint) -> None:
    """Emit the whole way out; all of `point.values()` are prepared, and effects are replayed."""
    e.position = point.instruction.position
    _restore_variables(e, point)
    _Ways(e, point).emit()


def place_traceback(error: BaseException, line: int, context: BaseException | None) -> None:
    """Give an exception that tracing made, and that was never raised for real, a traceback in the calling frame and its context.

    CPython relies on handled exceptions having a traceback.
    """
    if error.__traceback__ is not None:
        return
    made = TracebackType(None, sys._getframe(1), -1, line)  # by the line alone: the code is another
    object.__setattr__(error, "__traceback__", made)  # past a `__setattr__` of the program's
    if context is None:
        context = sys.exc_info()[1]  # what a caller handles
    if error.__context__ is None and context is not error:
        object.__setattr__(error, "__context__", context)


def _contexts(exception: Value) -> list[Value]:
    """The exceptions that tracing saw being handled when `exception` was raised, the nearest first."""
    found: list[Value] = []
    while (context := getattr(exception, "context", None)) is not None and context not in found:
        if context.is_constant():
            break  # None was stored
        found.append(context)
        exception = context
    return found


def _look_raised(e: Emitter, exception: Value, line: int) -> None:
    """Give an exception the traceback and the context that raising it for real would have given it."""
    e.pinned(place_traceback)
    e.value(exception)
    e.const(getattr(exception, "line", None) or line)
    contexts = _contexts(exception)
    e.value(contexts[0]) if contexts else e.const(None)
    e.call(3)
    e.pop()


def _restore_variables(e: Emitter, point: BreakPoint) -> None:
    locals_ = point.exit.locals
    for name in point.needed:
        if name in locals_:
            e.value(locals_[name])
        else:
            e.pinned(CellType)
            e.call(0)
        e.op("STORE_FAST", value=name)
    dropped = _bound_anew(point.code, point.exit.instruction)
    for name in argument_names(point.code):
        if name in point.needed or name in point.code.co_cellvars:
            continue
        if name in dropped or not _is_argument(locals_.get(name), name):
            e.op("DELETE_FAST", value=name)


@lru_cache(maxsize=512)
def _bound_anew(code: CodeType, start: int) -> frozenset[str]:
    """The variables that the rest of the function, from an instruction on, binds or deletes."""
    instructions = decode_normalised(code)
    return written_locals(instructions[index] for index in reachable(instructions, start))


def _is_argument(value: Value | None, name: str) -> bool:
    """Whether a variable holds what the frame was given under its name; if not, the frame has let go of that."""
    return value is not None and isinstance(value.source, Local) and value.source.variable == name


class _Ways:
    """The instruction itself and the ways it can go.

    Below the stack as it was at the break lie the exceptions being handled, one for each slot of exception state.
    """

    def __init__(self, e: Emitter, point: BreakPoint) -> None:
        self.e = e
        self.point = point
        self.handled = [place.value for place in point.stack if place.slot is Slot.HANDLED]

    def emit(self) -> None:
        e, point, i = self.e, self.point, self.point.instruction
        caught = Label("caught") if i.handler is not None or self.handled else None
        jumped = Label("jumped") if i.target is not None else None
        covered = self._covered()
        self._push_stack()
        e.release()
        e.protect = Protect(caught, len(self.handled) + len(covered), False) if caught is not None else None
        self._run(jumped)
        e.protect = None
        if falls_through(i):
            self._go_on(point.effect.pushes, point.exit.instruction + 1)
        if jumped is not None and i.target is not None:
            e.place(jumped)
            self._go_on(point.effect.jump_pushes, i.target)
        if caught is not None:
            e.place(caught)
            self._catch(covered)

    def _covered(self) -> list[Slot]:
        """The slots that stay when the instruction raises: what its handler expects, or enough to undo the exception state."""
        slots = [place.slot for place in self.point.stack]
        handler = self.point.instruction.handler
        if handler is None:
            while slots and slots[-1] is not Slot.HANDLED:
                slots.pop()
            return slots
        if handler.depth > len(slots) or Slot.HANDLED in slots[handler.depth :]:
            raise CannotResume("the stack is not what the handler expects")
        return slots[: handler.depth]

    def _push_stack(self) -> None:
        e, i = self.e, self.point.instruction
        for exception in self.point.exceptions():
            for made in (exception, *_contexts(exception)):
                _look_raised(e, made, i.position.line or self.point.code.co_firstlineno)
        for exception in self.handled:
            e.value(exception)
        for place in self.point.stack:
            if place.slot is Slot.NULL:
                e.op("PUSH_NULL")
                continue
            e.value(place.value)
            if place.slot is Slot.HANDLED:
                e.op("PUSH_EXC_INFO")
                e.pop()

    def _run(self, jumped: Label | None) -> None:
        e, i = self.e, self.point.instruction
        if jumped is not None and i.name in ("JUMP", "JUMP_NO_INTERRUPT"):
            e.jump(jumped)
        elif i.name == "RERAISE":
            e.op("RERAISE", 0)
        elif i.name in _BOUND_METHOD:
            e.op(_BOUND_METHOD[i.name], i.arg, i.value)
        else:
            e.op(i.name, i.arg, i.value, jumped)

    def _take_down(self, slots: Sequence[Slot]) -> list[Held]:
        """Move the stack, whose slots these are, into variables, and the exception state back to what it was."""
        held: list[Held] = []
        for slot in reversed(slots):
            if slot is Slot.HANDLED:
                self.e.op("POP_EXCEPT")
                held.append(Held(slot))
            else:
                held.append(Held(slot, self._store()))
        held.reverse()
        exceptions = [self._store() for _ in self.handled][::-1]
        states = [at for at, slot in enumerate(held) if slot.slot is Slot.HANDLED]
        for at, variable in zip(states, exceptions, strict=False):
            held[at] = Held(Slot.HANDLED, variable)
        return held

    def _store(self) -> str:
        name = self.e.temp()
        self.e.store_local(name)
        return name

    def _go_on(self, pushes: int, target: int) -> None:
        point = self.point
        below = len(point.stack) - point.effect.pops
        kept = below + min(point.effect.keeps, pushes)
        slots = [place.slot for place in point.stack[:kept]]
        if point.instruction.name in _BOUND_METHOD:
            made = self._take_down([*slots, Slot.VALUE])
            made.insert(len(made) - BEHAVIOUR.null_below_callable, Held(Slot.NULL))
        else:
            pushed = Slot.OPEN if point.exit.is_open else Slot.VALUE
            if point.instruction.name == "PUSH_NULL":
                pushed = Slot.NULL  # read as a value it would end the process
            made = self._take_down([*slots, *[pushed] * (pushes - (kept - below))])
        self._resume(target, made)

    def _catch(self, covered: Sequence[Slot]) -> None:
        """The exception is on top of what stayed."""
        e, handler = self.e, self.point.instruction.handler
        exception = Held(Slot.VALUE, self._store())
        stack = self._take_down(covered)
        if handler is None:
            self._push(exception)
            e.op("RERAISE", 0)
            return
        if handler.lasti:
            e.const(0)
            stack.append(Held(Slot.VALUE, self._store()))
        self._resume(handler.target, [*stack, exception])

    def _resume(self, target: int, stack: Sequence[Held]) -> None:
        """Call the rest of the function and return its result; a rest that only returns is done here."""
        e, code = self.e, self.point.code
        instructions = decode_normalised(code)
        if instructions[target].name == "RETURN_VALUE":
            self._push(stack[-1])
            e.ret()
            return
        if instructions[target].name == "LOAD_CONST" and instructions[target + 1].name == "RETURN_VALUE":
            e.const(instructions[target].value)
            e.ret()
            return
        made = resume_code(code, target, tuple(held.slot for held in stack), self._passed(target, instructions))
        if made.lets_go:
            e.pinned(_C.hand_over)
        e.function(made.code, made.free)
        values = iter([held for held in stack if held.slot is not Slot.NULL])
        for parameter in made.parameters:
            if parameter in made.stack:
                self._push(next(values))
            elif parameter == FIRST:
                e.op("LOAD_DEREF", value=code.co_varnames[0])
            else:
                e.op("LOAD_FAST", value=parameter)
                if made.lets_go:
                    e.op("DELETE_FAST", value=parameter)
        e.call(len(made.parameters) + made.lets_go)
        e.ret()

    def _push(self, held: Held) -> None:
        self.e.op("LOAD_FAST", value=held.variable)
        self.e.op("DELETE_FAST", value=held.variable)

    def _passed(self, target: int, instructions: Sequence[Instruction]) -> tuple[str, ...]:
        """The locals that are bound after the instruction and that the rest may read."""
        point = self.point
        i = point.instruction
        bound = set(point.needed) - set(point.code.co_cellvars) - set(point.code.co_freevars)
        if i.name == "DELETE_FAST" or (i.name == "STORE_FAST" and point.stack[-1].slot is Slot.NULL):
            bound.discard(i.value)
        elif i.name == "STORE_FAST" and i.value not in point.code.co_cellvars:
            bound.add(i.value)
        if not sees_locals(point.code):
            first = first_argument(point.code, target)
            bound &= live_locals(instructions)[target] | ({first} if first is not None else set())
        return tuple(name for name in point.code.co_varnames if name in bound)
