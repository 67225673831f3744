"""Two traces of the same program beside each other.

In: both, with their compiles. Out: a section: what they took, frame by frame and stage by stage, and which kernels became faster or slower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from ..trace.reader import Trace
from .model import Compile, spans_of
from .page import Section
from .sections import number, seconds, table


def comparison(one: Trace, ours: Sequence[Compile], two: Trace, theirs: Sequence[Compile]) -> Section:
    """The section."""
    totals = [("seconds compiling", *(seconds(sum(c.seconds or 0 for c in side)) for side in (ours, theirs)))]
    for name, kind in (("frames", "frame"), ("graph breaks", "break")):
        totals.append((name, *(_count(side, kind) for side in (ours, theirs))))
    totals.append(("recompiles", *(_plain(sum(1 for c in side if c.begin["misses"])) for side in (ours, theirs))))
    totals.append(
        (
            "kernels and calls",
            *(_plain(sum(len(r["kernels"]) for c in side for r in c.all("kernels"))) for side in (ours, theirs)),
        )
    )
    names = ("first", "second")
    html = table(("", *(f"#{name}" for name in names)), totals)
    html += Markup("<h3>Stages</h3>") + table(
        ("stage", "#first", "#second", "#second / first"), _beside(_stages(one), _stages(two))
    )
    html += Markup("<h3>Frames</h3>") + table(
        ("frame", "#first", "#second", "#second / first"), _beside(_frames(ours), _frames(theirs))
    )
    html += Markup("<h3>Kernels and calls</h3>") + table(
        ("kernel", "#first", "#second", "#second / first"), _beside(_kernels(ours), _kernels(theirs))
    )
    note = f"The first is {one.path}, the second {two.path}. What only one of them has stands without a number on the other side."
    return Section("comparison", "Comparison", html, note=note)


def _plain(value: int) -> dict[str, Any]:
    return number(value, str(value))


def _count(side: Sequence[Compile], kind: str) -> dict[str, Any]:
    return _plain(sum(1 for c in side for _ in c.all(kind)))


def _stages(trace: Trace) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for process in trace.processes:
        for span in spans_of(process):
            found[span.name] += span.seconds or 0.0
    return found


def _frames(side: Sequence[Compile]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for c in side:
        found[c.title] += c.seconds or 0.0
    return found


def _kernels(side: Sequence[Compile]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for c in side:
        for record in c.all("kernels"):
            for row in record["kernels"]:
                if row["seconds"]:
                    found[row["name"]] += row["seconds"] * row["count"]
    return found


def _beside(first: dict[str, float], second: dict[str, float]) -> list[tuple[Any, ...]]:
    rows = []
    for name in dict.fromkeys((*first, *second)):
        a, b = first.get(name), second.get(name)
        ratio = b / a if a and b is not None else None
        tone = "" if ratio is None else "good" if ratio < 0.9 else "bad" if ratio > 1.1 else ""
        rows.append(
            (
                name,
                seconds(a),
                seconds(b),
                {"sort": ratio, "text": "" if ratio is None else f"{ratio:.2f}", "class": f"n {tone}".strip()},
            )
        )
    return sorted(rows, key=lambda row: -max(row[1]["sort"] or 0, row[2]["sort"] or 0))
