"""Tables, cells and words that sections share.

In: rows of plain values. Out: HTML of tables that can be sorted and, where they are long, filtered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from ..units import seconds_text
from .page import render

Row = Sequence[Any]
_PATH = re.compile(r"(?<![\w.])/(?:[^/\s:()]+/)+([^/\s:()]+/[^/\s:()]+\.py)\b")
LONG = 12
"""Rows from which on a table has a field to filter it."""


def table(heads: Sequence[str], rows: Iterable[Row], *, empty: str = "nothing", name: str = "") -> Markup:
    """A table that can be sorted; a head with `#` in front is one of numbers. `name`: what one row is, in the plural, for the field that filters a long one."""
    rows = list(rows)
    if not rows:
        return Markup('<p class="note">%s</p>') % empty
    return render("tables.html", heads=heads, rows=rows, sortable=True, filters=name if len(rows) >= LONG else "")


def number(value: float | None, text: str) -> dict[str, Any]:
    """A cell that is sorted by a number."""
    return {"sort": value, "text": text, "class": "n"}


def whole(value: int) -> dict[str, Any]:
    """A cell with a whole number."""
    return number(value, str(value))


def seconds(value: float | None) -> dict[str, Any]:
    """A cell with a time."""
    return number(value, seconds_text(value))


def wide(text: str, *, more: str = "", mono: bool = False) -> dict[str, Any]:
    """A cell of prose, or of code; `more` stands below it, fainter."""
    return {"text": text, "sort": text, "class": "wide mono" if mono else "wide", "more": more}


def cut(text: str, length: int) -> str:
    """At most so many letters."""
    return text if len(text) <= length else text[: length - 1] + "…"


def shorter(text: str) -> str:
    """A sentence in which a file is named by its folder and its name."""
    return _PATH.sub(r"\1", text)
