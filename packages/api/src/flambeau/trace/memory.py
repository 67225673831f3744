"""The memory that a program holds at each of its steps, as it was planned.

In: an artifact. Out: for each instruction its text and the bytes that its allocations and library calls' results hold behind it. Inputs and parameters are the
caller's, and not counted; symbolic sizes have the value that was seen while compiling.
"""

from __future__ import annotations

from typing import Any

from flambeau_runtime.artifact import (
    Alloc,
    Artifact,
    Call,
    Free,
    Hold,
    Instruction,
    Launch,
    Program,
    Scalar,
    Subprogram,
    View,
)
from flambeau_runtime.text import instruction_text


def planned(artifact: Artifact) -> list[list[Any]]:
    """Rows of `[instruction, bytes]`; steps of a nested program stand where it is called, on top of what its caller holds."""
    hints = {symbol.register: symbol.hint for symbol in artifact.symbols if symbol.hint is not None}
    rows: list[list[Any]] = []
    _walk(artifact, artifact.program, hints, 0, rows)
    return rows


def _walk(artifact: Artifact, program: Program, hints: dict[int, Any], below: int, rows: list[list[Any]]) -> None:
    held: dict[int, int] = {}
    owner: dict[int, int] = {}
    readers: dict[int, int] = {}

    def take(register: int, size: int) -> None:
        owner[register], readers[register], held[register] = register, 1, size

    def release(register: int) -> None:
        root = owner.pop(register, None)
        if root is not None:
            readers[root] -= 1
            if not readers[root]:
                held.pop(root, None)

    for instruction in program.instructions:
        match instruction:
            case Alloc(out, sizes, strides, dtype):
                take(out, _extent(sizes, strides, hints) * dtype.itemsize)
            case View(out, source) if source in owner:
                owner[out] = owner[source]
                readers[owner[source]] += 1
            case Hold(reg, sizes, strides, dtype) if reg not in owner:
                # What a library call made.
                take(reg, _extent(sizes, strides, hints) * dtype.itemsize)
            case Free(regs):
                for register in regs:
                    release(register)
            case Subprogram(programs=programs):
                for nested in programs:
                    _walk(artifact, nested, {}, below + sum(held.values()), rows)
        if not isinstance(instruction, Free):
            rows.append([_label(artifact, instruction), below + sum(held.values())])


def _label(artifact: Artifact, instruction: Instruction) -> str:
    if isinstance(instruction, Launch):
        return artifact.kernels[instruction.kernel].name
    if isinstance(instruction, Call):
        return instruction.op
    if isinstance(instruction, Subprogram):
        return f"{instruction.kind} of a nested program ends"
    return instruction_text(instruction).splitlines()[0][:80]


def _extent(sizes: Any, strides: Any, hints: dict[int, Any]) -> int:
    """Elements from the first to the last."""
    known = [(_number(n, hints), _number(s, hints)) for n, s in zip(sizes, strides, strict=True)]
    if any(n == 0 for n, _ in known):
        return 0
    return 1 + sum((n - 1) * s for n, s in known)


def _number(value: Any, hints: dict[int, Any]) -> int:
    return int(hints.get(value.index, 0) or 0) if isinstance(value, Scalar) else int(value)
