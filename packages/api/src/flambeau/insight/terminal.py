"""Parts of an explanation for the library rich: in colour, as wide as the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .parts import Part


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
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=False)
    for place, head in enumerate(part.heads):
        table.add_column(head, justify="right" if place in part.numeric else "left", no_wrap=place in part.numeric)
    after: list[RenderableType] = []
    for row in part.rows:
        if not row.cells:
            after += [Padding(Text(line, style="dim"), (0, 0, 0, 2)) for line in row.lines]
            continue
        last = Text(row.cells[-1])
        for line in row.lines:
            last.append(f"\n{line}", style="dim")
        table.add_row(*map(Text, row.cells[:-1]), last)
    return [table, *after]


def _style(line: str) -> str:
    if set(line.strip()) == {"^"}:
        return "red"
    return "dim" if line.startswith("  ") else ""
