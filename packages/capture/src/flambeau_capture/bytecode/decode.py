"""Code object to raw instructions.

In: a code object. Out: one `Instruction` per real instruction (EXTENDED_ARG folded into `arg`, CACHE left out), jump targets as
indices, the exception table as a handler per instruction, operands that name something decoded into `value`.
Read next: `normalise.py`, which makes the code the same on every CPython; `encode.py`, the way back.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from .behaviour import BEHAVIOUR, BINARY_OPERATORS, CACHE_SIZES, COMPARE_OPERATORS, OPCODE_NAMES
from .exception_table import read_exception_table
from .line_table import read_positions
from .model import Handler, Instruction

BACKWARD = frozenset(
    {
        "JUMP_BACKWARD",
        "JUMP_BACKWARD_NO_INTERRUPT",
        "POP_JUMP_BACKWARD_IF_TRUE",
        "POP_JUMP_BACKWARD_IF_FALSE",
        "POP_JUMP_BACKWARD_IF_NONE",
        "POP_JUMP_BACKWARD_IF_NOT_NONE",
    }
)
FORWARD = frozenset(
    {
        "JUMP_FORWARD",
        "JUMP_IF_TRUE_OR_POP",
        "JUMP_IF_FALSE_OR_POP",
        "POP_JUMP_FORWARD_IF_TRUE",
        "POP_JUMP_FORWARD_IF_FALSE",
        "POP_JUMP_FORWARD_IF_NONE",
        "POP_JUMP_FORWARD_IF_NOT_NONE",
        "POP_JUMP_IF_TRUE",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "FOR_ITER",
        "SEND",
    }
)
CONSTANT = frozenset({"LOAD_CONST", "RETURN_CONST", "KW_NAMES"})
LOCAL = frozenset(
    {
        "LOAD_FAST",
        "LOAD_FAST_CHECK",
        "LOAD_FAST_AND_CLEAR",
        "STORE_FAST",
        "DELETE_FAST",
        "LOAD_CLOSURE",
        "LOAD_DEREF",
        "STORE_DEREF",
        "DELETE_DEREF",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "MAKE_CELL",
    }
)
TWO_LOCALS = frozenset({"LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})
NAME = frozenset(
    {
        "LOAD_NAME",
        "STORE_NAME",
        "DELETE_NAME",
        "STORE_GLOBAL",
        "DELETE_GLOBAL",
        "STORE_ATTR",
        "DELETE_ATTR",
        "LOAD_METHOD",
        "IMPORT_NAME",
        "IMPORT_FROM",
        "LOAD_FROM_DICT_OR_GLOBALS",
    }
)
NAME_AND_BITS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 0 if BEHAVIOUR.precall else 1, "LOAD_SUPER_ATTR": 2}
"""Opcodes whose argument holds a name's index above so many flag bits."""


def local_names(code: CodeType) -> tuple[str, ...]:
    """Names of the frame's slots: variables, then cells that are no variables, then free variables."""
    variables = code.co_varnames
    return (*variables, *(name for name in code.co_cellvars if name not in variables), *code.co_freevars)


def decode(code: CodeType) -> tuple[Instruction, ...]:
    """Raw instructions of `code`, in order."""
    units, index_at = _scan(code.co_code)
    positions = read_positions(code)
    handlers = _handlers(code, index_at)
    slots = local_names(code)
    out = []
    for start, at, opcode, arg in units:
        name = OPCODE_NAMES[opcode]
        unit = start >> 1
        value: Any = None
        target: int | None = None
        if name in LOCAL:
            value = slots[arg]
        elif name in CONSTANT:
            value = code.co_consts[arg]
        elif name in NAME:
            value = code.co_names[arg]
        elif name in FORWARD or name in BACKWARD:
            after = (at >> 1) + 1 + CACHE_SIZES[opcode]
            target = index_at[2 * (after - arg if name in BACKWARD else after + arg)]
        elif name in NAME_AND_BITS:
            value = code.co_names[arg >> NAME_AND_BITS[name]]
        elif name in TWO_LOCALS:
            value = (slots[arg >> 4], slots[arg & 15])
        elif name == "COMPARE_OP":
            value = COMPARE_OPERATORS[arg >> BEHAVIOUR.compare_shift]
        elif name == "BINARY_OP":
            value = BINARY_OPERATORS[arg]
        out.append(Instruction(name, arg, value, target, handlers[unit], positions[unit], start))
    return tuple(out)


def _scan(data: bytes) -> tuple[list[tuple[int, int, int, int]], dict[int, int]]:
    """(offset of the first byte, offset of the opcode, opcode, argument) of each instruction, and the index of the instruction at each offset."""
    units: list[tuple[int, int, int, int]] = []
    index_at: dict[int, int] = {}
    extended = OPCODE_NAMES.index("EXTENDED_ARG")
    at, end = 0, len(data)
    while at < end:
        start, arg = at, data[at + 1]
        opcode = data[at]
        while opcode == extended:
            at += 2
            opcode = data[at]
            arg = arg << 8 | data[at + 1]
        index_at[start] = len(units)
        units.append((start, at, opcode, arg))
        at += 2 + 2 * CACHE_SIZES[opcode]
    index_at[end] = len(units)
    return units, index_at


def _handlers(code: CodeType, index_at: dict[int, int]) -> list[Handler | None]:
    """The handler of every code unit."""
    table: list[Handler | None] = [None] * (len(code.co_code) // 2)
    for entry in read_exception_table(code.co_exceptiontable):
        handler = Handler(index_at[2 * entry.target], entry.depth, entry.lasti)
        table[entry.start : entry.end] = [handler] * (entry.end - entry.start)
    return table
