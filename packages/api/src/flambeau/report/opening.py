"""The sections that a report opens with: the numbers that one asks for first, the stages over time, and what became of each frame.

In: a trace and its compiles. Out: `page.Section`s.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from ..trace.reader import Process, Trace
from ..units import counted, seconds_text
from . import pictures
from .cells import seconds, shorter, table, whole, wide
from .model import Compile, Span, place_of, seconds_of, spans_of, stages_of
from .page import Section, render
from .stages import meaning

_MEASURING = "measure for the trace"


def overview(trace: Trace, compiles: Sequence[Compile]) -> Section:
    """The numbers that one asks for first, and what they lead to."""
    breaks = [found for c in compiles for found in c.all("break")]
    again = [c for c in compiles if c.is_again]
    rows = [row for c in compiles for row in c.kernels]
    launches = sum(row["count"] for row in rows if row["kind"] == "kernel")
    calls = sum(row["count"] for row in rows if row["kind"] != "kernel")
    places = len({(found["file"], found["line"]) for found in breaks})
    facts = [
        ("frames", len(compiles), "compiles of frames", "functions, and parts of them behind a break"),
        ("timeline", seconds_text(seconds_of(compiles)) or "0 s", "compiling", "of all processes together"),
        ("frames", len(breaks), "graph breaks", f"at {counted(places, 'line')} of the program" if breaks else "no graph was cut"),
        ("recompiles", len(again), "recompiles", "compiles of what had been compiled before"),
        ("kernels", launches, "kernel launches", "in one call of every program"),
        ("kernels", calls, "library calls", "in one call of every program"),
    ]  # fmt: skip
    tiles = Markup("").join(
        Markup('<a class="fact" href="#%s"><b>%s</b>%s<br><span class="faint">%s</span></a>') % fact for fact in facts
    )
    said = Markup("").join(_findings(trace, compiles, breaks, again))
    processes = table(
        ("process", "command", "flambeau", "torch", "python", "host"),
        (
            (
                p.name,
                " ".join(map(str, p.facts["command"])),
                p.facts["flambeau"],
                p.facts["torch"],
                p.facts["python"],
                p.facts["host"],
            )
            for p in trace.processes
        ),
    )
    html = (
        Markup('<div class="facts">%s</div>') % tiles
        + (Markup('<ul class="findings">%s</ul>') % said if said else Markup(""))
        + processes
    )
    return Section("overview", "Overview", html)


def _findings(
    trace: Trace, compiles: Sequence[Compile], breaks: Sequence[Any], again: Sequence[Compile]
) -> Iterator[Markup]:
    """One line for each thing that one should look at first."""
    line = Markup('<li><a href="#%s">%s</a> %s</li>')
    unfinished = [c.title for c in compiles if c.seconds is None]
    damaged = sum(process.damaged for process in trace.processes)
    if unfinished:
        yield line % ("frames", "Never ended:", f"{', '.join(unfinished)}. The process ended first, or still runs.")
    if damaged:
        yield line % ("overview", "Damaged:", f"{counted(damaged, 'line')} of the trace could not be read.")
    for (_, place, reason), times in Counter((b["file"], place_of(b), b["reason"]) for b in breaks).most_common(3):
        yield line % ("frames", place, f"cuts a graph in {counted(times, 'compile')}: {reason}")
    if again:
        dearest = max(again, key=lambda c: c.seconds or 0)
        yield line % (
            "recompiles",
            counted(len(again), "recompile"),
            f"took {seconds_text(seconds_of(again))}, most of it {dearest.title}: {shorter(dearest.begin['misses'][0])}",
        )
    eager = [c.title for c in compiles if c.last("eager") is not None]
    if eager:
        yield line % ("frames", "In eager:", f"graphs of {', '.join(eager)}")
    measuring = sum(record["seconds"] for _, record in trace.of("stage_end") if record["stage"] == _MEASURING)
    if measuring >= 0.05 * seconds_of(compiles) > 0:
        yield line % (
            "timeline",
            seconds_text(measuring),
            "of compiling were spent on measuring kernels for this report.",
        )


def timeline(trace: Trace) -> Section:
    """The stages over time, and what each stage took in all."""
    bands: list[tuple[str, list[Span]]] = []
    spans: list[Span] = []
    for process in trace.processes:
        threads: dict[int, list[Span]] = defaultdict(list)
        for span in spans_of(process):
            threads[span.thread].append(span)
            spans.append(span)
        bands += _bands(process, threads)
    rows = sorted(stages_of(spans).items(), key=lambda item: -sum(item[1]))
    found = table(
        ("stage", "#seconds", "#times", "#longest", "what it does"),
        ((name, seconds(sum(t)), whole(len(t)), seconds(max(t)), wide(meaning(name))) for name, t in rows),
        name="stages",
    )
    picture = Markup(
        '<figure class="scroll" tabindex="0" aria-label="timeline, scrolls">%s</figure>'
    ) % pictures.timeline(bands)
    note = (
        "Time runs from left to right. At the top of a band are the frames that a thread compiled; below each, the stages that it consists of, and below those, "
        "theirs: the seconds of a stage are also part of the stage above it. Threads that only ran compilers of kernels share bands."
    )
    return Section("timeline", "Timeline", picture + found, note=note)


def _bands(process: Process, threads: Mapping[int, Sequence[Span]]) -> Iterator[tuple[str, list[Span]]]:
    """One band for a thread that compiled frames; spans of the others in as few as there can be."""
    helpers: list[list[Span]] = []
    for place, (thread, spans) in enumerate(threads.items()):
        if any(span.depth or span.is_frame or span.seconds is None for span in spans):
            label = "main thread" if thread == process.facts["pid"] else f"thread {place}"
            yield f"{process.name}, {label}", list(spans)
        else:
            for span in spans:
                free = next((band for band in helpers if band[-1].begin + (band[-1].seconds or 0) <= span.begin), None)
                helpers.append([span]) if free is None else free.append(span)
    for at, band in enumerate(helpers, 1):
        yield f"{process.name}, compilers of kernels {at}", band


def frames(compiles: Sequence[Compile]) -> Section:
    """What became of each frame, with breaks where they are."""
    rows = []
    seen: set[tuple[str, int, str]] = set()
    for c in compiles:
        frame = c.last("frame")
        end = c.last("frame_end")
        verdict, tone = _verdict(frame, end)
        breaks = []
        for found in c.all("break"):
            at = found["file"], found["line"], found["code"]
            breaks.append(
                {**found, "excerpt": excerpt(c.process, found["file"], found["line"]), "is_new": at not in seen}
            )
            seen.add(at)
        notes = [f"Compiled again, because {shorter(miss)}." for miss in c.begin["misses"]]
        if frame is not None and frame["skipped"]:
            notes.append("Plain Python runs this function; the functions that it calls are compiled by themselves.")
        notes += [f"A graph runs in eager: {record['reason']}." for record in c.all("eager")]
        rows.append(
            {
                "title": c.title,
                "place": c.place,
                "again": c.is_again,
                "verdict": verdict,
                "tone": tone,
                "seconds": seconds_text(c.seconds),
                "notes": notes,
                "breaks": breaks,
                "open": any(found["is_new"] for found in breaks),
            }
        )
    note = (
        "A frame is one function, or the part of it behind a graph break. Every compile of one stands here, in order. [3/1] is the second compile (entry 1) of the "
        "fourth function that was met (number 3)."
    )
    return Section("frames", "Frames and breaks", render("frames.html", frames=rows), str(len(compiles)), note)


def _verdict(frame: Mapping[str, Any] | None, end: Mapping[str, Any] | None) -> tuple[str, str]:
    if end is None:
        return "never ended", "bad"
    if end["error"]:
        return f"raised {end['error']}", "bad"
    if frame is None:
        return "left to plain Python", "faint"
    if frame["skipped"]:
        return f"runs in plain Python: {frame['skipped']}", "warn"
    return (
        (f"one graph of {counted(frame['operations'], 'operation')}", "good")
        if frame["graph"]
        else ("nothing to compute", "faint")
    )


def excerpt(process: Process, path: str, line: int, *, around: int = 2) -> Markup:
    """The lines around one, which has a mark; "" where the source is not in the trace."""
    text = next((record["text"].splitlines() for record in process.of("file") if record["path"] == path), None)
    head = f"{path}:{line}\n"
    if text is None or line > len(text):
        return Markup("%s") % head
    shown = Markup("").join(
        Markup('<span class="caret">%s</span>\n') % f"> {n:5}  {text[n - 1]}"
        if n == line
        else Markup("%s\n") % f"  {n:5}  {text[n - 1]}"
        for n in range(max(line - around, 1), min(line + around, len(text)) + 1)
    )
    return Markup("%s") % head + shown
