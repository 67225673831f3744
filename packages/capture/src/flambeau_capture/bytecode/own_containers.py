"""Containers that a call of a function makes for itself.

In: code, and the names in it that are builtins. Out: `on_own`, the instructions that read an attribute of such a container, or store in it:
`rows = []; rows.append(x); rows[0] = y`. Nothing outside of the call can see what they change. A local counts where all that it is ever given is new.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from enum import Enum
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType

from .flow import falls_through
from .model import Instruction
from .normalise import decode_normalised
from .stack_depth import UnknownInstructionError, effect


class _Slot(Enum):
    """What is known of a slot of the stack."""

    ANY = 0
    OWN = 1
    #: Its call makes a container.
    MAKER = 2


_Stack = tuple[_Slot, ...]
_BUILDS = ("BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_CONST_KEY_MAP")
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>")
_CLASSES = ("list", "dict", "set", "sorted")
_LOADS = ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF")
_STORES = ("STORE_FAST", "STORE_DEREF")
_OWNERS = {"LOAD_ATTR": 1, "LOAD_METHOD": 1, "STORE_SUBSCR": 2, "DELETE_SUBSCR": 2}
"""Where in the stack the container lies, from the top."""


def on_own(code: CodeType, builtins: Container[str]) -> frozenset[int]:
    """Indices of normalised instructions whose container is one that the call made."""
    instructions = decode_normalised(code)
    try:
        own = {i.value for i in instructions if i.name in _STORES} - _given(code)
        while True:
            stacks = _stacks(instructions, own | _of_each_call(code), builtins)
            others = {
                instructions[at].value
                for at, stack in stacks.items()
                if instructions[at].name in _STORES and stack[-1] is not _Slot.OWN
            }
            if own.isdisjoint(others):
                break
            own -= others
    except UnknownInstructionError:  # of a generator
        return frozenset()
    return frozenset(
        at
        for at, stack in stacks.items()
        if (place := _OWNERS.get(instructions[at].name)) is not None and stack[-place] is _Slot.OWN
    )


def _given(code: CodeType) -> set[str]:
    """Locals that hold at first what the caller gave, and those that others may store in."""
    flags = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + flags]
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return {*given, *code.co_freevars, *(name for one in inner for name in _stored_outside(one))} - _of_each_call(code)


def _stored_outside(code: CodeType) -> Iterator[str]:
    """Variables of functions around it that the code, or code in it, stores."""
    if code.co_freevars:
        yield from (i.value for i in decode_normalised(code) if i.name in ("STORE_DEREF", "DELETE_DEREF"))
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _stored_outside(inner)


def _of_each_call(code: CodeType) -> set[str]:
    """`**kwargs`, a new dict at each call."""
    if not code.co_flags & CO_VARKEYWORDS:
        return set()
    at = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    return {code.co_varnames[at]} - set(code.co_cellvars)


def _stacks(instructions: Sequence[Instruction], own: set[str], builtins: Container[str]) -> dict[int, _Stack]:
    """What lies on the stack before each instruction that control reaches, whichever way it came."""
    found: dict[int, _Stack] = {}
    todo: list[tuple[int, _Stack]] = [(0, ())]
    while todo:
        index, stack = todo.pop()
        known = found.get(index)
        if known is not None:
            stack = tuple(a if a is b else _Slot.ANY for a, b in zip(known, stack, strict=True))
            if stack == known:
                continue
        found[index] = stack
        todo.extend(_following(index, instructions[index], stack, own, builtins))
    return found


def _following(
    index: int, i: Instruction, stack: _Stack, own: set[str], builtins: Container[str]
) -> Iterator[tuple[int, _Stack]]:
    if i.handler is not None:
        yield i.handler.target, (*stack[: i.handler.depth], *(_Slot.ANY,) * (i.handler.lasti + 1))
    what = effect(i)
    if i.target is not None:
        yield i.target, _after(i, stack, what.pops, what.jump_pushes, what.keeps)
    if falls_through(i):
        if i.name in _LOADS:
            made = _Slot.OWN if i.value in own else _Slot.ANY
        else:
            made = _pushed(i, stack, what.pops, builtins)
        after = _after(i, stack, what.pops, what.pushes, what.keeps)
        yield index + 1, after if made is _Slot.ANY else _with(i, after, made)


def _pushed(i: Instruction, stack: _Stack, pops: int, builtins: Container[str]) -> _Slot:
    """What an instruction makes, where that is a container or a maker of one."""
    match i.name:
        case name if name in _BUILDS:
            return _Slot.OWN
        case "LOAD_GLOBAL" if i.value in _CLASSES and i.value in builtins:
            return _Slot.MAKER
        case "LOAD_ATTR" | "LOAD_METHOD" if i.value == "copy":
            return _Slot.MAKER
        case "LOAD_CONST" if isinstance(i.value, CodeType) and i.value.co_name in _COMPREHENSIONS:
            return _Slot.MAKER
        case "MAKE_FUNCTION" if stack[-1] is _Slot.MAKER:
            return _Slot.MAKER
        case "CALL" if _Slot.MAKER in stack[len(stack) - pops :][:2]:
            return _Slot.OWN
    return _Slot.ANY


def _with(i: Instruction, after: _Stack, made: _Slot) -> _Stack:
    """The stack with what was made: below the owner where a method is loaded, on top else."""
    if i.name == "LOAD_METHOD":
        return (*after[:-2], made, _Slot.ANY)
    return (*after[:-1], made)


def _after(i: Instruction, stack: _Stack, pops: int, pushes: int, keeps: int) -> _Stack:
    rest, operands = stack[: len(stack) - pops], stack[len(stack) - pops :]
    match i.name:
        case "COPY":
            return (*stack, stack[-i.arg])
        case "SWAP":
            return (*rest, operands[-1], *operands[1:-1], operands[0])
    kept = operands[: min(keeps, pushes)]
    return (*rest, *kept, *(_Slot.ANY,) * (pushes - len(kept)))
