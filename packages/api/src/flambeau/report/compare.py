"""Two traces of the same program beside each other.

In: both, with their compiles. Out: a section: what they took, frame by frame and stage by stage, which breaks came and went, and which kernels became faster or slower.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ..trace.reader import Trace
from ..units import bytes_text
from .cells import number, seconds, table, whole, wide
from .model import Compile, place_of, seconds_of, spans_of, stages_of
from .page import Section
from .stages import meaning

Side = Sequence[Compile]


def comparison(one: Trace, ours: Side, two: Trace, theirs: Side) -> Section:
    """The section."""
    first, second = _names(one, two)
    heads = (f"#{first}", f"#{second}", f"#{second} / {first}")
    totals = [("compiling", *_pair(seconds_of(ours), seconds_of(theirs)))]
    totals.append(("kernels and calls, one call of each", *_pair(_measured(ours), _measured(theirs))))
    for name, kind in (("compiles of frames", "frame_begin"), ("graph breaks", "break")):
        totals.append((name, *map(whole, (_count(ours, kind), _count(theirs, kind))), ""))
    again = [sum(1 for c in side if c.is_again) for side in (ours, theirs)]
    launched = [sum(row["count"] for row in _kernel_rows(side)) for side in (ours, theirs)]
    totals.append(("recompiles", *map(whole, again), ""))
    totals.append(("kernel launches and library calls", *map(whole, launched), ""))
    peaks = [_peak(side) for side in (ours, theirs)]
    totals.append(("largest program in memory", *(number(peak, bytes_text(peak)) for peak in peaks), _ratio(*peaks)))
    html = table(("", *heads), totals)
    html += Markup("<h3>Graph breaks</h3>") + table(
        ("line", "reason", *heads[:2]), _breaks(ours, theirs), empty="Neither has one."
    )
    stages = [(*row, wide(meaning(row[0]))) for row in _beside(_stages(one), _stages(two))]
    parts = (
        ("Frames", "frames", ("frame", *heads), _beside(_frames(ours), _frames(theirs))),
        ("Stages", "stages", ("stage", *heads, "what it does"), stages),
        (
            "Kernels and calls",
            "kernels and calls",
            ("kernel or call", *heads),
            _beside(_kernels(ours), _kernels(theirs)),
        ),
    )
    for title, name, columns, rows in parts:
        html += Markup("<h3>%s</h3>") % title + table(columns, rows, name=name)
    note = (
        f"{one.path} beside {two.path}; all other sections are about the first. Below 1, the second is faster, or needs less. What only one of them has stands "
        "without a number on the other side. Frames are compared by their function and their entry, kernels by their name."
    )
    return Section("comparison", "Comparison", html, note=note)


def _names(one: Trace, two: Trace) -> tuple[str, str]:
    """What the columns are called: the folders' names, where those differ."""
    names = one.path.resolve().name, two.path.resolve().name
    return names if names[0] != names[1] else ("first", "second")


def _kernel_rows(side: Side) -> list[Mapping[str, Any]]:
    return [row for c in side for row in c.kernels]


def _measured(side: Side) -> float:
    return sum((row["seconds"] or 0) * row["count"] for row in _kernel_rows(side))


def _peak(side: Side) -> int:
    return max((held for c in side for record in c.all("memory") for _, held in record["planned"]), default=0)


def _count(side: Side, kind: str) -> int:
    return len(side) if kind == "frame_begin" else sum(1 for c in side for _ in c.all(kind))


def _breaks(ours: Side, theirs: Side) -> list[tuple[Any, ...]]:
    """Breaks by place and reason; those that only one side has come first."""
    counts = [Counter((place_of(b), b["reason"]) for c in side for b in c.all("break")) for side in (ours, theirs)]
    rows = [(*at, whole(counts[0][at]), whole(counts[1][at])) for at in dict.fromkeys((*counts[0], *counts[1]))]
    return sorted(rows, key=lambda row: bool(row[2]["sort"]) and bool(row[3]["sort"]))


def _stages(trace: Trace) -> dict[str, float]:
    spans = (span for process in trace.processes for span in spans_of(process))
    return {name: sum(each) for name, each in stages_of(spans).items()}


def _frames(side: Side) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for c in side:
        found[f"{c.function} ({c.place}), entry {c.begin['entry']}"] += c.seconds or 0.0
    return found


def _kernels(side: Side) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for row in _kernel_rows(side):
        if row["seconds"]:
            found[row["name"]] += row["seconds"] * row["count"]
    return found


def _pair(first: float, second: float) -> tuple[Any, ...]:
    return seconds(first), seconds(second), _ratio(first, second)


def _ratio(first: float | None, second: float | None) -> dict[str, Any]:
    ratio = second / first if first and second is not None else None
    tone = "" if ratio is None else "good" if ratio < 0.9 else "bad" if ratio > 1.1 else ""
    text = "" if ratio is None else f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
    return {"sort": ratio, "text": text, "class": f"n {tone}".strip()}


def _beside(first: Mapping[str, float], second: Mapping[str, float]) -> list[tuple[Any, ...]]:
    rows = [
        (name, seconds(first.get(name)), seconds(second.get(name)), _ratio(first.get(name), second.get(name)))
        for name in dict.fromkeys((*first, *second))
    ]
    return sorted(rows, key=lambda row: -max(row[1]["sort"] or 0, row[2]["sort"] or 0))
