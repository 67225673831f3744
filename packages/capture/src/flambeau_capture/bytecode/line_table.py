"""Line tables, both ways.

In: a code object, or one `Position` per code unit run. Out: positions per code unit, or `co_linetable` bytes (the location format
CPython has used since 3.11). An entry covers 1 to 8 code units; its first byte is `128 | kind << 3 | units - 1`, and the kind says
how line and columns follow.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType

from .model import NOWHERE, Position

_NONE, _LONG, _NO_COLUMNS = 15, 14, 13
_MAX_UNITS = 8


def read_positions(code: CodeType) -> list[Position]:
    """The position of every code unit; runs of equal positions share one record."""
    positions: list[Position] = []
    last_key: object = None
    last = NOWHERE
    for key in code.co_positions():
        if key != last_key:
            last_key, last = key, Position(*key)
        positions.append(last)
    return positions


def write_line_table(first_line: int, runs: Iterable[tuple[Position, int]]) -> bytes:
    """Bytes for `runs` of (position, code units) in order."""
    out = bytearray()
    line = first_line
    for position, units in _merged(runs):
        while units > 0:
            step = min(units, _MAX_UNITS)
            line = _append(out, position, step, line)
            units -= step
    return bytes(out)


def _merged(runs: Iterable[tuple[Position, int]]) -> Iterable[tuple[Position, int]]:
    current: Position | None = None
    total = 0
    for position, units in runs:
        if position == current:
            total += units
            continue
        if current is not None:
            yield current, total
        current, total = position, units
    if current is not None:
        yield current, total


def _append(out: bytearray, position: Position, units: int, line: int) -> int:
    if position.line is None:
        out.append(128 | _NONE << 3 | units - 1)
        return line
    delta = position.line - line
    column, end_column = position.column, position.end_column
    if column is None or end_column is None or position.end_line is None:
        out.append(128 | _NO_COLUMNS << 3 | units - 1)
        _signed(out, delta)
        return position.line
    same_line = position.end_line == position.line
    if same_line and delta == 0 and column < 80 and 0 <= end_column - column < 16:
        out.append(128 | column >> 3 << 3 | units - 1)
        out.append((column & 7) << 4 | end_column - column)
    elif same_line and 0 <= delta <= 2 and column < 128 and end_column < 128:
        out.append(128 | 10 + delta << 3 | units - 1)
        out.append(column)
        out.append(end_column)
    else:
        out.append(128 | _LONG << 3 | units - 1)
        _signed(out, delta)
        _unsigned(out, position.end_line - position.line)
        _unsigned(out, column + 1)
        _unsigned(out, end_column + 1)
    return position.line


def _unsigned(out: bytearray, number: int) -> None:
    while number > 63:
        out.append(64 | number & 63)
        number >>= 6
    out.append(number)


def _signed(out: bytearray, number: int) -> None:
    _unsigned(out, -number << 1 | 1 if number < 0 else number << 1)
