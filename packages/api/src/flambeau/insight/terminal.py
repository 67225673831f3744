"""Parts of an explanation for the library rich: in colour, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from .parts import Part
from .plain import aligned, widths_of


def renderable(parts: Sequence[Part]) -> Group:
    """All parts, each under its title."""
    shown: list[RenderableType] = []
    for part in parts:
        shown.append(Text(part.title, style="bold"))
        if part.note:
            shown.append(Text(part.note, style="dim"))
        shown += _rows(part)
        shown.append(Text())
    return Group(*shown[:-1])


def _rows(part: Part) -> list[RenderableType]:
    if not part.heads:
        return [Text(line, style=_style(line), no_wrap=part.is_code) for row in part.rows for line in row.lines]
    widths = widths_of(part)
    shown: list[RenderableType] = [Text(_cells(part.heads, widths, part.numeric), style="dim")]
    for row in part.rows:
        if row.cells:
            shown.append(Text(_cells(row.cells, widths, part.numeric)))
        # Below the numbers, as wide as the terminal: beside them, in the column of names, each would be broken into several lines.
        indent = 4 if row.cells else 2
        shown += [Padding(Text(line.strip(), style="dim"), (0, 0, 0, indent)) for line in row.lines]
    return shown


def _cells(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[int]) -> str:
    return "  ".join(aligned(cells, widths, numeric)).rstrip()


def _style(line: str) -> str:
    if set(line.strip()) == {"^"}:
        return "red"
    return "dim" if line.startswith("  ") else ""
