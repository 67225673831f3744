"""The records of a disassembled function.

In: nothing. Out: frozen records shared by decoding, normalising, analysing and encoding. Two dialects use them:

* *raw*: the opcodes of the running CPython without EXTENDED_ARG and CACHE; `arg` is the number the interpreter will see;
* *normalised*: the opcodes listed in `normalise.py`, the same on every CPython; `value` says what the operand means.

Jump targets and handlers are indices into the tuple that holds the instruction; while code is being written they are labels
(`Draft`, resolved by `encode.link`).
"""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Position:
    """Where an instruction comes from; any part may be unknown. Columns are UTF-8 byte offsets."""

    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    end_column: int | None = None


NOWHERE = Position()


@frozen
class Handler:
    """What catches an exception raised by an instruction.

    The stack is cut to `depth`, the index of the raising instruction is pushed when `lasti`, then the exception, and control goes to `target`.
    """

    target: int
    depth: int
    lasti: bool


@frozen(eq=False)
class Instruction:
    """One instruction. `offset` is the byte offset in the code it was decoded from, -1 for instructions that were made."""

    name: str
    arg: int = 0
    value: Any = None
    target: int | None = None
    handler: Handler | None = None
    position: Position = NOWHERE
    offset: int = -1


class Label:
    """A place in code that is being written; identity is all it has."""

    __slots__ = ("hint",)

    def __init__(self, hint: str = "") -> None:
        self.hint = hint

    def __repr__(self) -> str:
        return f"<label {self.hint or hex(id(self))}>"


@frozen(eq=False)
class Protect:
    """As `Handler`, with a label for a target."""

    target: Label
    depth: int
    lasti: bool


@frozen(eq=False)
class Draft:
    """A normalised instruction that is not placed yet: its target is a label."""

    name: str
    arg: int = 0
    value: Any = None
    target: Label | None = None
    protect: Protect | None = None
    position: Position = NOWHERE


@frozen
class ExceptionEntry:
    """One row of an exception table, in code units: `[start, end)` is covered by the handler at `target`."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool
