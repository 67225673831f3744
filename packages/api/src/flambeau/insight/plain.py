"""Parts of an explanation as plain text in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from .parts import Part, Row

WIDTH = 80


def plain_text(parts: Sequence[Part]) -> str:
    """All parts, each under its title."""
    return "\n\n".join(_part(part) for part in parts)


def _part(part: Part) -> str:
    lines = [part.title, "-" * min(len(part.title), WIDTH)]
    if part.note:
        lines += _wrapped(part.note, "")
    widths = widths_of(part)
    if part.heads:
        lines.append(_cells(part.heads, widths, part.numeric))
    for row in part.rows:
        if row.cells:
            lines.append(_cells(row.cells, widths, part.numeric))
        indent = "    " if row.cells else ""
        for line in row.lines:
            lines += [line] if part.is_code and not line.startswith("break") else _wrapped(line, indent)
    return "\n".join(line.rstrip() for line in lines)


def widths_of(part: Part) -> list[int]:
    """How wide each column is."""
    rows = [row.cells for row in (Row(part.heads), *part.rows) if row.cells]
    return [max(len(row[place]) for row in rows) for place in range(len(part.heads))]


def aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[int]) -> list[str]:
    """Each as wide as its column, numbers to the right."""
    return [
        cell.rjust(width) if place in numeric else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]


def _cells(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[int]) -> str:
    placed = aligned(cells, widths, numeric)
    line = " ".join(placed).rstrip()
    if len(line) <= WIDTH:
        return line
    # The last cell, a name, goes below.
    return " ".join(placed[:-1]).rstrip() + "\n  " + cells[-1]


def _wrapped(text: str, indent: str) -> list[str]:
    own = indent + " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(),
        WIDTH,
        initial_indent=own,
        subsequent_indent=own + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]
