"""Exception tables, both ways.

In: `co_exceptiontable` bytes. Out: `ExceptionEntry` rows in code units, and back.
Format: each row is four variable-length numbers (start, length, target, depth << 1 | lasti), big end first in groups of six bits;
bit 6 says that another group follows, bit 7 marks the first byte of a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .model import ExceptionEntry


def read_exception_table(table: bytes) -> tuple[ExceptionEntry, ...]:
    """Rows of a table in order."""
    numbers = _numbers(iter(table))
    rows = []
    for start in numbers:
        length, target, extra = next(numbers), next(numbers), next(numbers)
        rows.append(ExceptionEntry(start, start + length, target, extra >> 1, bool(extra & 1)))
    return tuple(rows)


def _numbers(data: Iterator[int]) -> Iterator[int]:
    for byte in data:
        number = byte & 63
        while byte & 64:
            byte = next(data)
            number = number << 6 | byte & 63
        yield number


def write_exception_table(entries: Iterable[ExceptionEntry]) -> bytes:
    """Bytes of a table; rows must be sorted and not overlap."""
    out = bytearray()
    for entry in entries:
        first = len(out)
        for number in (entry.start, entry.end - entry.start, entry.target, entry.depth << 1 | entry.lasti):
            _append(out, number)
        out[first] |= 128
    return bytes(out)


def _append(out: bytearray, number: int) -> None:
    groups = [number & 63]
    while number := number >> 6:
        groups.append(number & 63)
    for group in reversed(groups[1:]):
        out.append(group | 64)
    out.append(groups[0])
