"""Cut a real function at one instruction, as a graph break would.

In: a code object and the index of a normalised instruction. Out: code that runs the original up to the instruction, then hands the
real stack and locals to `emit_break`, exactly as `assemble` hands it traced values. So every instruction of any function can be a
graph break, and the outcome must be that of the plain function.
"""

from __future__ import annotations

import sys
from types import CodeType, FunctionType

from attrs import evolve

from flambeau_capture.bytecode.behaviour import BEHAVIOUR
from flambeau_capture.bytecode.encode import spec_of
from flambeau_capture.bytecode.flow import falls_through
from flambeau_capture.bytecode.model import Instruction, Label, Protect
from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.bytecode.stack_depth import effect, exception_slots
from flambeau_capture.captured import Break, Position
from flambeau_capture.rewrite.break_point import analyse, emit_break
from flambeau_capture.rewrite.emitter import Emitter
from flambeau_capture.rewrite.resume import CannotResume
from flambeau_capture.values.base import NULL, Value


class CannotCut(Exception):
    """The helper itself cannot cut here (for instance a local that may or may not be bound)."""


class Held(Value):
    """A value that a variable of the cut code holds."""

    __slots__ = ()

    def python_type(self) -> type:
        return object


_NEVER = {
    "POP_EXCEPT",
    "PUSH_EXC_INFO",
    "SWAP",
    "COPY",
    "LOAD_FAST_AND_CLEAR",
    "MAKE_CELL",
    "JUMP",
    "JUMP_NO_INTERRUPT",
    "RETURN_VALUE",
}


def cuttable(code: CodeType) -> list[int]:
    """Indices of instructions that a tracer may break at."""
    return [at for at, i in enumerate(decode_normalised(code)) if i.name not in _NEVER]


def cut(code: CodeType, index: int) -> CodeType:
    """The cut code. Raises CannotCut or CannotResume."""
    instructions = decode_normalised(code)
    states = _states(code)
    if states[index] is None:
        raise CannotCut("unreachable")
    stack, bound, maybe = states[index]
    e = Emitter(evolve(spec_of(code), names=(), constants=code.co_consts[:1]))
    labels = [Label(str(at)) for at in range(len(instructions) + 1)]
    protects: dict[object, Protect] = {}
    for at, i in enumerate(instructions):
        e.place(labels[at])
        e.position = i.position
        e.protect = None
        if at == index:
            _hand_over(e, code, index, stack, bound, maybe)
            continue
        if i.handler is not None:
            e.protect = protects.setdefault(
                i.handler, Protect(labels[i.handler.target], i.handler.depth, i.handler.lasti)
            )
        _copy(e, i, labels)
    return e.finish()


def _copy(e: Emitter, i: Instruction, labels: list[Label]) -> None:
    target = None if i.target is None else labels[i.target]
    if i.name in ("LOAD_METHOD", "LOAD_SUPER_METHOD"):
        e.op({"LOAD_METHOD": "LOAD_ATTR"}.get(i.name, "LOAD_SUPER_ATTR"), i.arg, i.value)
        e.op("PUSH_NULL")
        if BEHAVIOUR.null_below_callable:
            e.swap()
    else:
        e.op(i.name, i.arg, i.value, target)


def _hand_over(e, code, index, stack, bound, maybe):
    marked = exception_slots(code)[index]
    instructions = decode_normalised(code)
    if instructions[index].name == "RERAISE" and instructions[index - 1].name == "POP_EXCEPT":
        marked = marked[:-1]
    handled, values = [], []
    for at in range(len(stack) - 1, -1, -1):
        value = Held()
        name = e.temp()
        if at in marked:
            e.pinned(_current)
            e.call(0)
            e.store_local(name)
            e.op("POP_EXCEPT")
            handled.insert(0, value)
        else:
            e.store_local(name)
        if not stack[at]:
            e.bind(value, name)
        values.insert(0, NULL if stack[at] else value)
    locals_ = {}
    for name in code.co_varnames:
        if name in bound and name not in (*code.co_cellvars, *code.co_freevars):
            locals_[name] = Held()
            e.bind(locals_[name], name)
    for name in (*code.co_cellvars, *code.co_freevars):
        locals_[name] = Held()
        temp = e.temp()
        e.op("LOAD_CLOSURE", value=name)
        e.store_local(temp)
        e.bind(locals_[name], temp)
    exit_ = Break(index, tuple(values), locals_, "test", Position(code.co_filename, 1, code.co_name), tuple(handled))
    point = analyse(code, exit_)
    from flambeau_capture.bytecode.liveness import live_locals

    if maybe & live_locals(decode_normalised(code))[index]:
        raise CannotCut("a live local may be unbound")
    emit_break(e, point)


def _current() -> BaseException | None:
    return sys.exc_info()[1]


def _states(code: CodeType):
    """Per instruction: which stack slots are NULL, which locals are bound for sure, which perhaps."""
    instructions = decode_normalised(code)
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    states = [None] * (len(instructions) + 1)
    todo = [(0, (), frozenset(code.co_varnames[:count]), frozenset())]
    while todo:
        index, stack, bound, maybe = todo.pop()
        old = states[index]
        if old is not None:
            merged = (stack, old[1] & bound, old[2] | maybe | (old[1] ^ bound))
            if merged == old:
                continue
            stack, bound, maybe = merged
            if len(stack) != len(old[0]):
                raise CannotCut("stack depths differ")
        states[index] = (stack, bound, maybe)
        i = instructions[index]
        if i.handler is not None:
            after = (*stack[: i.handler.depth], *(False,) * (i.handler.lasti + 1))
            todo.append((i.handler.target, after, bound, maybe))
            if i.name in ("STORE_FAST", "DELETE_FAST"):
                todo.append((i.handler.target, after, bound - {i.value}, maybe | {i.value}))
        if i.name == "STORE_FAST":
            bound, maybe = (bound | {i.value}, maybe - {i.value})
            if stack[-1]:
                bound, maybe = bound - {i.value}, maybe
        elif i.name in ("DELETE_FAST", "LOAD_FAST_AND_CLEAR"):
            boxed = (*code.co_cellvars, *code.co_freevars)
            cleared_null = i.value not in bound and i.value not in boxed
            bound, maybe = bound - {i.value}, maybe - {i.value}
        what = effect(i)
        keep = stack[: len(stack) - what.pops]
        ops = stack[len(stack) - what.pops :]
        if i.name == "PUSH_NULL":
            new = (*stack, True)
        elif i.name == "LOAD_FAST_AND_CLEAR":
            new = (*stack, cleared_null)
        elif i.name in ("LOAD_METHOD", "LOAD_SUPER_METHOD"):
            new = (*keep, True, False) if BEHAVIOUR.null_below_callable else (*keep, False, True)
        elif i.name == "COPY":
            new = (*stack, stack[-i.arg])
        elif i.name == "SWAP":
            new = (*keep, ops[-1], *ops[1:-1], ops[0])
        else:
            new = (*keep, *ops[: what.keeps], *(False,) * (what.pushes - what.keeps))
        if i.target is not None:
            jump = (*keep, *(False,) * what.jump_pushes)
            todo.append((i.target, jump, bound, maybe))
        if falls_through(i):
            todo.append((index + 1, new, bound, maybe))
    return states


def with_code(function: FunctionType, code: CodeType) -> FunctionType:
    """The same function with other code."""
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


__all__ = ["CannotCut", "CannotResume", "cut", "cuttable", "with_code"]
