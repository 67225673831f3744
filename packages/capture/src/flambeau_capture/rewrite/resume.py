"""Resume functions: the rest of a function, from one instruction on.

In: a code object, the index of the normalised instruction to go on at, what lies on the stack there, and which locals are passed.
Out: `ResumeCode`, an ordinary function's code: its arguments are the stack (bottom first) and the locals, its free variables are
the cells and free variables of the original, its body is the part of the original that can still be reached, with the original's
positions and exception handlers. So `try` and `with` blocks that are open at the break stay open in the resume function.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType

from attrs import evolve, frozen

from ..bytecode.encode import CodeSpec, spec_of
from ..bytecode.flow import reachable
from ..bytecode.liveness import live_locals, written_locals
from ..bytecode.lower import write_code
from ..bytecode.model import Handler, Instruction
from ..bytecode.normalise import decode_normalised
from ..sources.arguments import FIRST, stack_argument

_SUFFIX = re.compile(r"\.resume_at_\d+$")
_PART = re.compile(r"\.(resume|round)_at_\d+$")
_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "STORE_FAST", "DELETE_FAST", "MAKE_CELL"})
_SEES_LOCALS = frozenset(
    {
        "locals",
        "vars",
        "dir",
        "eval",
        "exec",
        "_getframe",
        "currentframe",
        "stack",
        "f_locals",
        "breakpoint",
        "set_trace",
    }
)
_SEES_FRAMES = frozenset({"_getframe", "currentframe", "extract_stack", "walk_stack", "print_stack", "format_stack"})


class CannotResume(Exception):
    """The frame cannot be cut here without changing what it does; it has to run in plain Python. The argument is the reason."""


class Slot(enum.Enum):
    """What a stack slot holds at the cut."""

    VALUE = "value"
    OPEN = "open"
    """A value whose shape depends on data."""
    NULL = "null"
    HANDLED = "handled"
    """The exception that was being handled before; passed is the exception being handled *now*, the rest follows from it."""


@frozen
class ResumeCode:
    """A resume function's code.

    `parameters` are its argument names; those in `stack` hold the stack, in order. `free` are its free variables. `lets_go`: whether it may let go
    of an argument before it returns, which nobody must hold for it then.
    """

    code: CodeType
    parameters: tuple[str, ...]
    free: tuple[str, ...]
    stack: frozenset[str]
    lets_go: bool = False


def base_name(name: str) -> str:
    """A function's own name, without what earlier cuts added."""
    return _SUFFIX.sub("", name)


@lru_cache(maxsize=512)
def resume_code(code: CodeType, target: int, slots: tuple[Slot, ...], variables: tuple[str, ...]) -> ResumeCode:
    """The code that goes on at instruction `target` of `decode_normalised(code)`; `variables` are the locals passed."""
    instructions = decode_normalised(code)
    kept = reachable(instructions, target)
    free = (*code.co_cellvars, *code.co_freevars)
    parameters = [_argument(at, slot) for at, slot in enumerate(slots) if slot is not Slot.NULL]
    stack = frozenset(parameters)
    first = first_argument(code, target)
    if first is not None:
        parameters.insert(0, FIRST if first in free else first)
    parameters.extend(name for name in variables if name not in parameters)
    prologue = _prologue(instructions[target], slots, kept[0] != target)
    unbound = live_locals(instructions)[target] - set(parameters)
    body = _body(instructions, kept, target, prologue, unbound)
    used = {i.value for i in body if i.name in _LOCALS} - set(free) - set(parameters)
    spec = spec_of_part(code, "resume", instructions[target], parameters, used)
    lets_go = not written_locals(body).isdisjoint(parameters)
    return ResumeCode(write_code(body, spec), tuple(parameters), free, stack, lets_go)


def spec_of_part(
    code: CodeType, kind: str, start: Instruction, parameters: Sequence[str], others: Iterable[str]
) -> CodeSpec:
    """The spec of a function made of a part of `code` that begins with `start`: its arguments and its other variables.

    The cells of `code` are free variables of it; its qualified name tells the `kind` of part and the line, its name is the function's own,
    which tracebacks and messages tell.
    """
    suffix = f".{kind}_at_{start.position.line or code.co_firstlineno}"
    return evolve(
        spec_of(code),
        qualified_name=base_name(code.co_qualname) + suffix,
        flags=code.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS),
        argument_count=len(parameters),
        positional_only_count=0,
        keyword_only_count=0,
        variables=(*parameters, *sorted(others)),
        cells=(),
        free=(*code.co_cellvars, *code.co_freevars),
        names=(),
        constants=code.co_consts[:1],
    )


def _argument(index: int, slot: Slot) -> str:
    return stack_argument(index, is_open=slot is Slot.OPEN)


def _prologue(target: Instruction, slots: Sequence[Slot], jump: bool) -> list[Instruction]:
    """Put the stack back; arguments that hold it are dropped, so that nothing lives longer than it would have."""
    out: list[Instruction] = []

    def put(name: str, value: str | None = None) -> None:
        out.append(Instruction(name, value=value, position=target.position))

    for at, slot in enumerate(slots):
        if slot is Slot.NULL:
            put("PUSH_NULL")
            continue
        put("LOAD_FAST", _argument(at, slot))
        put("DELETE_FAST", _argument(at, slot))
        if slot is Slot.HANDLED:
            put("PUSH_EXC_INFO")
            put("POP_TOP")
    if jump:
        put("JUMP")
    return out


def _body(
    instructions: Sequence[Instruction],
    kept: Sequence[int],
    target: int,
    prologue: list[Instruction],
    unbound: frozenset[str],
) -> tuple[Instruction, ...]:
    """Prologue and the kept part. Reads of locals that are not passed are checked, whatever the compiler once knew of them."""
    place = {index: len(prologue) + at for at, index in enumerate(kept)}
    if prologue and prologue[-1].name == "JUMP":
        prologue[-1] = evolve(prologue[-1], target=place[target])
    body = list(prologue)
    for index in kept:
        i = instructions[index]
        handler = i.handler
        if handler is not None:
            handler = Handler(place[handler.target], handler.depth, handler.lasti)
        if handler is not i.handler or i.target is not None:
            i = evolve(i, target=None if i.target is None else place[i.target], handler=handler)
        if i.name == "LOAD_FAST" and i.value in unbound:
            i = evolve(i, name="LOAD_FAST_CHECK")
        body.append(i)
    return tuple(body)


def first_argument(code: CodeType, target: int) -> str | None:
    """The argument that `super()` without arguments would look up in the rest of the function; None when nothing does."""
    if "__class__" not in code.co_freevars or not code.co_argcount:
        return None
    instructions = decode_normalised(code)
    rest = (instructions[index] for index in reachable(instructions, target))
    return code.co_varnames[0] if any(i.value == "super" for i in rest if i.name == "LOAD_GLOBAL") else None


@lru_cache(maxsize=512)
def sees_locals(code: CodeType) -> bool:
    """Whether the function may look at its own locals by other means than naming them."""
    return not _SEES_LOCALS.isdisjoint(code.co_names)


@lru_cache(maxsize=512)
def sees_frames(code: CodeType) -> bool:
    """Whether the function may look at the stack of calls, where one that is cut stands more than once, and its variables elsewhere."""
    return not _SEES_FRAMES.isdisjoint(code.co_names) or {"inspect", "stack"}.issubset(code.co_names)


def is_part(code: CodeType) -> bool:
    """Whether this is a part of a function, called by the part before it or by the function."""
    return _PART.search(code.co_qualname) is not None
