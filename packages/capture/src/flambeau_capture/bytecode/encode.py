"""Raw instructions to code object.

In: raw instructions (targets and handlers as indices) and a `CodeSpec` with everything else a code object holds.
Out: a `types.CodeType`. Inline caches, EXTENDED_ARG, jump distances, the line table and the exception table are written here;
`lower.py` makes raw instructions out of normalised ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType
from typing import Any

from attrs import frozen

from .behaviour import CACHE_SIZES, OPCODES
from .decode import BACKWARD
from .exception_table import write_exception_table
from .line_table import write_line_table
from .model import ExceptionEntry, Handler, Instruction


class EncodingError(ValueError):
    """Instructions that no code object can hold; a fault of whoever made them."""


@frozen
class CodeSpec:
    """Everything of a code object but its instructions."""

    name: str
    qualified_name: str
    filename: str
    first_line: int
    flags: int
    argument_count: int
    positional_only_count: int
    keyword_only_count: int
    stack_size: int
    variables: tuple[str, ...]
    cells: tuple[str, ...]
    free: tuple[str, ...]
    names: tuple[str, ...]
    constants: tuple[Any, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the frame's slots, in order."""
        return (*self.variables, *(name for name in self.cells if name not in self.variables), *self.free)


def argument_names(code: CodeType) -> tuple[str, ...]:
    """The names of all arguments in the order of the frame's slots, `*args` and `**kwargs` included."""
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    return code.co_varnames[:count]


def spec_of(code: CodeType) -> CodeSpec:
    """The spec of an existing code object."""
    return CodeSpec(
        name=code.co_name,
        qualified_name=code.co_qualname,
        filename=code.co_filename,
        first_line=code.co_firstlineno,
        flags=code.co_flags,
        argument_count=code.co_argcount,
        positional_only_count=code.co_posonlyargcount,
        keyword_only_count=code.co_kwonlyargcount,
        stack_size=code.co_stacksize,
        variables=code.co_varnames,
        cells=code.co_cellvars,
        free=code.co_freevars,
        names=code.co_names,
        constants=code.co_consts,
    )


def encode(instructions: Sequence[Instruction], spec: CodeSpec) -> CodeType:
    """The code object. Raises EncodingError for a jump in the wrong direction or an unknown opcode."""
    layout = _Layout(instructions)
    return CodeType(
        spec.argument_count,
        spec.positional_only_count,
        spec.keyword_only_count,
        len(spec.variables),
        spec.stack_size,
        spec.flags,
        layout.code(),
        spec.constants,
        spec.names,
        spec.variables,
        spec.filename,
        spec.name,
        spec.qualified_name,
        spec.first_line,
        layout.line_table(spec.first_line),
        layout.exception_table(),
        spec.free,
        spec.cells,
    )


class _Layout:
    """Places instructions: distances decide argument widths, which decide distances, until nothing moves."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        try:
            self.opcodes = [OPCODES[instruction.name] for instruction in instructions]
        except KeyError as error:
            raise EncodingError(f"this CPython has no opcode {error.args[0]}") from None
        self.args = [0 if i.target is not None else i.arg for i in instructions]
        self.starts: list[int] = []
        self._place()
        while self._aim():
            self._place()

    def _place(self) -> None:
        at, starts = 0, []
        for opcode, arg in zip(self.opcodes, self.args, strict=True):
            starts.append(at)
            at += _width(arg) + CACHE_SIZES[opcode]
        starts.append(at)
        self.starts = starts

    def _aim(self) -> bool:
        """Set every jump's distance; whether a width changed. Widths never shrink, so that the search ends."""
        moved = False
        for index, instruction in enumerate(self.instructions):
            if instruction.target is None:
                continue
            distance = self.starts[instruction.target] - self.starts[index + 1]
            if instruction.name in BACKWARD:
                distance = -distance
            if distance < 0:
                raise EncodingError(
                    f"{instruction.name} cannot jump that way (instruction {index} to {instruction.target})"
                )
            if _width(distance) > _width(self.args[index]):
                moved = True
            elif _width(distance) < _width(self.args[index]):
                continue
            self.args[index] = distance
        return moved

    def code(self) -> bytes:
        out = bytearray()
        extended = OPCODES["EXTENDED_ARG"]
        for opcode, arg in zip(self.opcodes, self.args, strict=True):
            for shift in range(8 * (_width(arg) - 1), 0, -8):
                out += bytes((extended, arg >> shift & 0xFF))
            out += bytes((opcode, arg & 0xFF))
            out += bytes(2 * CACHE_SIZES[opcode])
        return bytes(out)

    def line_table(self, first_line: int) -> bytes:
        starts = self.starts
        return write_line_table(
            first_line, ((i.position, starts[at + 1] - starts[at]) for at, i in enumerate(self.instructions))
        )

    def exception_table(self) -> bytes:
        rows: list[ExceptionEntry] = []
        current: Handler | None = None
        begin = 0
        for index, instruction in enumerate(self.instructions):
            if instruction.handler != current:
                self._close(rows, current, begin, index)
                current, begin = instruction.handler, index
        self._close(rows, current, begin, len(self.instructions))
        return write_exception_table(rows)

    def _close(self, rows: list[ExceptionEntry], handler: Handler | None, begin: int, end: int) -> None:
        if handler is not None and begin < end:
            starts = self.starts
            rows.append(
                ExceptionEntry(starts[begin], starts[end], starts[handler.target], handler.depth, handler.lasti)
            )


def _width(arg: int) -> int:
    return 1 if arg <= 0xFF else 2 if arg <= 0xFFFF else 3 if arg <= 0xFFFFFF else 4
