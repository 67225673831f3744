"""What instructions do to the stack.

In: a normalised instruction. Out: `effect(i)`, how many slots it takes off and puts on; `stack_depths`, how many lie there before each
one. For raw code, `stack_size` gives `co_stacksize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import CodeType

from attrs import frozen

from ..library import dis
from .behaviour import OPCODES
from .flow import falls_through
from .model import Instruction
from .normalise import decode_normalised


@frozen
class StackEffect:
    """Slots read from the top (`pops`) and left in their place: `pushes` when control goes on, `jump_pushes` when it jumps.

    Of these, the lowest `keeps` are untouched: they are only looked at.
    """

    pops: int
    pushes: int
    jump_pushes: int = 0
    keeps: int = 0


class UnknownInstructionError(LookupError):
    """An instruction that is not in the normalised set."""


_FIXED: dict[str, tuple[int, int] | tuple[int, int, int] | tuple[int, int, int, int]] = {
    **dict.fromkeys(
        (
            "LOAD_FAST",
            "LOAD_FAST_CHECK",
            "LOAD_FAST_AND_CLEAR",
            "LOAD_CLOSURE",
            "LOAD_DEREF",
            "LOAD_CLASSDEREF",
            "LOAD_GLOBAL",
            "LOAD_NAME",
            "LOAD_LOCALS",
            "LOAD_CONST",
            "LOAD_ASSERTION_ERROR",
            "LOAD_BUILD_CLASS",
            "PUSH_NULL",
        ),
        (0, 1),
    ),
    **dict.fromkeys(
        (
            "DELETE_FAST",
            "DELETE_DEREF",
            "DELETE_GLOBAL",
            "DELETE_NAME",
            "MAKE_CELL",
            "SETUP_ANNOTATIONS",
            "JUMP",
            "JUMP_NO_INTERRUPT",
        ),
        (0, 0),
    ),
    **dict.fromkeys(
        (
            "STORE_FAST",
            "STORE_DEREF",
            "STORE_GLOBAL",
            "STORE_NAME",
            "DELETE_ATTR",
            "POP_TOP",
            "POP_EXCEPT",
            "RETURN_VALUE",
            "IMPORT_STAR",
            "PRINT_EXPR",
        ),
        (1, 0),
    ),
    **dict.fromkeys(("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"), (1, 0, 0)),
    **dict.fromkeys(
        (
            "LOAD_ATTR",
            "LOAD_FROM_DICT_OR_DEREF",
            "LOAD_FROM_DICT_OR_GLOBALS",
            "UNARY_NEGATIVE",
            "UNARY_POSITIVE",
            "UNARY_INVERT",
            "UNARY_NOT",
            "TO_BOOL",
            "LIST_TO_TUPLE",
            "CONVERT_VALUE",
            "FORMAT_SIMPLE",
            "GET_ITER",
            "GET_YIELD_FROM_ITER",
            "CALL_INTRINSIC_1",
        ),
        (1, 1),
    ),
    **dict.fromkeys(("LOAD_METHOD", "BEFORE_WITH", "PUSH_EXC_INFO"), (1, 2)),
    **dict.fromkeys(("GET_LEN", "MATCH_MAPPING", "MATCH_SEQUENCE", "IMPORT_FROM"), (1, 2, 0, 1)),
    **dict.fromkeys(
        (
            "BINARY_SUBSCR",
            "BINARY_OP",
            "COMPARE_OP",
            "IS_OP",
            "CONTAINS_OP",
            "FORMAT_WITH_SPEC",
            "IMPORT_NAME",
            "PREP_RERAISE_STAR",
            "CALL_INTRINSIC_2",
        ),
        (2, 1),
    ),
    **dict.fromkeys(("STORE_ATTR", "DELETE_SUBSCR"), (2, 0)),
    "CHECK_EXC_MATCH": (2, 2, 0, 1),
    "CHECK_EG_MATCH": (2, 2),
    "LOAD_SUPER_ATTR": (3, 1),
    "LOAD_SUPER_METHOD": (3, 2),
    "STORE_SUBSCR": (3, 0),
    "MATCH_KEYS": (2, 3, 0, 2),
    "MATCH_CLASS": (3, 1),
    "WITH_EXCEPT_START": (4, 5, 0, 4),
    "FOR_ITER": (1, 2, 0, 1),
}


def effect(i: Instruction) -> StackEffect:
    """The stack effect of a normalised instruction. Raises UnknownInstructionError for generator opcodes and unknown ones."""
    fixed = _FIXED.get(i.name)
    if fixed is not None:
        return StackEffect(*fixed)
    arg = i.arg
    match i.name:
        case "COPY":
            return StackEffect(arg, arg + 1, keeps=arg)
        case "SWAP":
            return StackEffect(arg, arg)
        case "BUILD_TUPLE" | "BUILD_LIST" | "BUILD_SET" | "BUILD_STRING" | "BUILD_SLICE":
            return StackEffect(arg, 1)
        case "BUILD_MAP":
            return StackEffect(2 * arg, 1)
        case "BUILD_CONST_KEY_MAP":
            return StackEffect(arg + 1, 1)
        case "LIST_APPEND" | "SET_ADD" | "LIST_EXTEND" | "SET_UPDATE" | "DICT_UPDATE":
            return StackEffect(arg + 1, arg, keeps=arg)
        case "DICT_MERGE":
            return StackEffect(arg + 4, arg + 3, keeps=arg + 3)
        case "MAP_ADD":
            return StackEffect(arg + 2, arg, keeps=arg)
        case "UNPACK_SEQUENCE":
            return StackEffect(1, arg)
        case "UNPACK_EX":
            return StackEffect(1, (arg & 0xFF) + 1 + (arg >> 8))
        case "CALL" | "CALL_KW":
            return StackEffect(arg + 2, 1)
        case "CALL_FUNCTION_EX":
            return StackEffect(3 + (arg & 1), 1)
        case "MAKE_FUNCTION":
            return StackEffect(1 + (arg & 15).bit_count(), 1)
        case "RAISE_VARARGS":
            return StackEffect(arg, 0)
        case "RERAISE":
            return StackEffect(arg + 1, arg, keeps=arg)
    raise UnknownInstructionError(i.name)


def stack_depths(
    instructions: Sequence[Instruction], start: int = 0, depth: int = 0, end: int | None = None
) -> dict[int, int]:
    """The number of slots before each instruction that control reaches from `start`; ways end at `end`, which is part of the answer.

    Raises UnknownInstructionError as `effect` does.
    """
    found: dict[int, int] = {}
    todo = [(start, depth)]
    while todo:
        index, depth = todo.pop()
        if index in found:
            continue
        found[index] = depth
        if index == end:
            continue
        i = instructions[index]
        if i.handler is not None:
            todo.append((i.handler.target, i.handler.depth + i.handler.lasti + 1))
        what = effect(i)
        if i.target is not None:
            todo.append((i.target, depth - what.pops + what.jump_pushes))
        if falls_through(i):
            todo.append((index + 1, depth - what.pops + what.pushes))
    return found


@lru_cache(maxsize=512)
def exception_slots(code: CodeType) -> tuple[tuple[int, ...], ...]:
    """For each normalised instruction, which stack slots (bottom first) hold a previous exception that PUSH_EXC_INFO left there.

    Unreachable instructions have none.
    """
    instructions = decode_normalised(code)
    found: list[tuple[int, ...]] = [()] * len(instructions)
    if all(i.name != "PUSH_EXC_INFO" for i in instructions):
        return tuple(found)
    seen: set[int] = set()
    todo: list[tuple[int, tuple[bool, ...]]] = [(0, ())]
    while todo:
        index, stack = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        found[index] = tuple(at for at, flag in enumerate(stack) if flag)
        i = instructions[index]
        if i.handler is not None:
            todo.append((i.handler.target, (*stack[: i.handler.depth], *(False,) * (i.handler.lasti + 1))))
        what = effect(i)
        if i.target is not None:
            todo.append((i.target, _after(i, stack, what.pops, what.jump_pushes, what.keeps)))
        if falls_through(i):
            todo.append((index + 1, _after(i, stack, what.pops, what.pushes, what.keeps)))
    return tuple(found)


def _after(i: Instruction, stack: tuple[bool, ...], pops: int, pushes: int, keeps: int) -> tuple[bool, ...]:
    rest, operands = stack[: len(stack) - pops], stack[len(stack) - pops :]
    match i.name:
        case "PUSH_EXC_INFO":
            return (*rest, True, False)
        case "COPY":
            return (*stack, stack[-i.arg])
        case "SWAP":
            return (*rest, operands[-1], *operands[1:-1], operands[0])
    kept = operands[: min(keeps, pushes)]
    return (*rest, *kept, *(False,) * (pushes - len(kept)))


def stack_size(raw: Sequence[Instruction]) -> int:
    """The deepest the stack gets in raw code that starts empty; handlers included."""
    depths: dict[int, int] = {}
    todo = [(0, 0)]
    deepest = 1
    while todo:
        index, depth = todo.pop()
        while depths.get(index, -1) < depth:
            depths[index] = depth
            i = raw[index]
            if i.handler is not None:
                todo.append((i.handler.target, i.handler.depth + i.handler.lasti + 1))
            opcode = OPCODES[i.name]
            arg = None if opcode < dis.HAVE_ARGUMENT else i.arg
            deepest = max(deepest, depth + 1)
            if i.target is not None:
                todo.append((i.target, depth + dis.stack_effect(opcode, arg, jump=True)))
            if i.name in _RAW_TERMINAL:
                break
            depth += dis.stack_effect(opcode, arg, jump=False)
            deepest = max(deepest, depth)
            index += 1
    return deepest + 1


_RAW_TERMINAL = frozenset(
    {
        "RETURN_VALUE",
        "RETURN_CONST",
        "RAISE_VARARGS",
        "RERAISE",
        "JUMP_FORWARD",
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
    }
)
