"""What `flambeau bench` measured as a picture: bars for time, first call and memory, one row an engine.

In: rows of plain data. Out: SVG as text, which needs nothing beside itself and brings its own ground, so that it reads on dark pages too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from ..units import bytes_text, seconds_text

_BAR, _GAP, _ROW, _TOP = 250, 120, 26, 54
_LETTER = 7.2
"""About the widest that a letter of a name is."""
#: How far a line is shown, relative to its bar.
_FARTHEST = 1.25
#: The spread of calls, relative to their median, above which the machine was not quiet.
LOUD = 0.1
_COLOURS = {"eager": "#8a8f98", "torch.compile": "#d9822b", "flambeau": "#2b6cb0"}


def picture(title: str, rows: Sequence[dict[str, Any]]) -> str:
    """One panel for each of the three numbers, and what its lines mean below; rows of engines that failed say so."""
    eager = next((row["median"] for row in rows if row["engine"] == "eager" and "median" in row), None)
    panels: list[tuple[str, str, Callable[[float], str]]] = [
        ("time of a call" + ("" if eager is None else ", how many times as fast as eager"), "median", seconds_text),
        ("first call", "first_seconds", seconds_text),
        ("peak memory", "peak_bytes", bytes_text),
    ]
    left = 22 + int(_LETTER * max((len(row["engine"]) for row in rows), default=0))
    width, height = left + len(panels) * (_BAR + _GAP), _TOP + len(rows) * _ROW + 34
    parts = [_text(12, 22, title, size=15, weight="bold")]
    parts += [_text(left - 10, _middle(n), row["engine"], anchor="end") for n, row in enumerate(rows)]
    parts.append(_text(12, height - 12, _legend(rows), colour="#555"))
    for place, (name, key, told) in enumerate(panels):
        x = left + place * (_BAR + _GAP)
        parts.append(_text(x, 44, name, colour="#555"))
        most = max((_reach(row, key) for row in rows if "error" not in row), default=0) or 1
        for number, row in enumerate(rows):
            if "error" in row:
                parts += [_text(x, _middle(number), "failed", colour="#b00020")] if place == 0 else []
                continue
            beside = "" if key != "median" or eager is None else f", {eager / row['median']:.2f}x"
            parts += _bar(x, number, row, key, most, told(row[key]) + beside)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="max-width:100%;height:auto" role="img" font-family="system-ui, sans-serif"><title>{escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _reach(row: dict[str, Any], key: str) -> float:
    """How far a bar and its line go. One call that waited for another process would make all bars short."""
    return min(row["high"], _FARTHEST * row[key]) if key == "median" else row[key]


def is_loud(row: dict[str, Any]) -> bool:
    """Whether the calls of an engine took too different times for their median to say much."""
    return "error" not in row and (row["high"] - row["low"]) > LOUD * row["median"]


def _legend(rows: Sequence[dict[str, Any]]) -> str:
    words = "Shorter is better. A black line is the middle half of the calls; with an arrow it goes on."
    return f"{words} The machine was not quiet." if any(map(is_loud, rows)) else words


def _bar(x: int, number: int, row: dict[str, Any], key: str, most: float, words: str) -> list[str]:
    length = row[key] / most * _BAR
    y = _TOP + number * _ROW + 4
    colour = _COLOURS.get(row["engine"].partition("/")[0], "#666")
    told = f"{row['engine']}: {words}"
    parts = [
        f'<rect x="{x}" y="{y}" width="{max(length, 1):.1f}" height="{_ROW - 9}" rx="2" fill="{colour}"><title>{escape(told)}</title></rect>'
    ]
    end = length
    if key == "median":
        low, high = row["low"] / most * _BAR, row["high"] / most * _BAR
        shown = min(high, _BAR)
        end = max(shown, length)
        arrow = "" if high <= _BAR else "m-5 -3l5 3l-5 3"
        parts.append(
            f'<path d="M{x + low:.1f} {_middle(number) - 4}h{shown - low:.1f}{arrow}" fill="none" stroke="#111" stroke-width="1.5"/>'
        )
    return [*parts, _text(int(x + end + 6), _middle(number), words)]


def _middle(number: int) -> int:
    return _TOP + number * _ROW + 17


def _text(
    x: int, y: int, words: str, *, anchor: str = "start", size: int = 12, weight: str = "normal", colour: str = "#111"
) -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}">'
        f"{escape(words)}</text>"
    )
