"""The sections of a report of one trace.

In: a trace and its compiles. Out: `page.Section`s, and what the script shows of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..trace.reader import Process, Trace
from . import pictures
from .links import panes_of
from .model import Compile, Span, spans_of
from .page import Section, bytes_text, number_text, render, seconds_text

Row = Sequence[Any]


def table(heads: Sequence[str], rows: Iterable[Row], *, empty: str = "nothing") -> Markup:
    """A table that can be sorted; a head with `#` in front is one of numbers."""
    rows = list(rows)
    if not rows:
        return Markup('<p class="note">%s</p>') % empty
    return render("tables.html", heads=heads, rows=rows, sortable=True)


def number(value: float | None, text: str) -> dict[str, Any]:
    """A cell that is sorted by a number."""
    return {"sort": value, "text": text, "class": "n"}


def seconds(value: float | None) -> dict[str, Any]:
    """A cell with a time."""
    return number(value, seconds_text(value))


def overview(trace: Trace, compiles: Sequence[Compile]) -> Section:
    """The numbers that one asks for first."""
    breaks = sum(1 for c in compiles for _ in c.all("break"))
    again = sum(1 for c in compiles if c.begin["misses"])
    rows = [row for c in compiles for record in c.all("kernels") for row in record["kernels"]]
    launches = sum(row["count"] for row in rows if row["kind"] == "kernel")
    facts = [
        ("compiles of frames", len(compiles), ""),
        ("seconds compiling", seconds_text(sum(c.seconds or 0 for c in compiles)), "of all processes together"),
        ("graph breaks", breaks, ""),
        ("recompiles", again, ""),
        ("kernel launches", launches, "in all programs, one call of each"),
        ("library calls", sum(row["count"] for row in rows if row["kind"] != "kernel"), ""),
    ]
    tiles = Markup("").join(
        Markup('<div class="fact"><b>%s</b>%s<br><span class="faint">%s</span></div>') % (value, name, more)
        for name, value, more in facts
    )
    unfinished = [c.title for c in compiles if c.seconds is None]
    damaged = sum(process.damaged for process in trace.processes)
    said = Markup("")
    if unfinished:
        said += Markup('<p class="bad">Never ended: %s. The process ended first, or still runs.</p>') % ", ".join(
            unfinished
        )
    if damaged:
        said += Markup('<p class="warn">%s lines of the trace could not be read.</p>') % damaged
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
    return Section("overview", "Overview", Markup('<div class="facts">%s</div>') % tiles + said + processes)


def timeline(trace: Trace) -> Section:
    """Stages over time, and what they took in all."""
    bands: list[tuple[str, list[Span]]] = []
    totals: dict[str, list[float]] = defaultdict(list)
    for process in trace.processes:
        threads: dict[int, list[Span]] = defaultdict(list)
        for span in spans_of(process):
            threads[span.thread].append(span)
            totals[span.name].append(span.seconds or 0.0)
        bands += [
            (f"{process.name}, {_thread(at, thread, process)}", spans)
            for at, (thread, spans) in enumerate(threads.items())
        ]
    rows = sorted(totals.items(), key=lambda item: -sum(item[1]))
    found = table(
        ("stage", "#seconds", "#times", "#longest"),
        ((name, seconds(sum(t)), number(len(t), str(len(t))), seconds(max(t))) for name, t in rows),
    )
    picture = Markup('<figure class="scroll">%s</figure>') % pictures.timeline(bands)
    note = (
        "Each band is a thread. A stage lies under the one that it is part of; times of stages in stages count in both."
    )
    return Section("timeline", "Timeline", picture + found, note=note)


def _thread(at: int, thread: int, process: Process) -> str:
    return "main thread" if thread == process.facts["pid"] else f"thread {at}"


def frames(compiles: Sequence[Compile]) -> Section:
    """What became of each frame, with breaks where they are."""
    rows = []
    for c in compiles:
        frame = c.last("frame")
        end = c.last("frame_end")
        verdict, tone = _verdict(frame, end)
        breaks = [{**found, "excerpt": excerpt(c.process, found["file"], found["line"])} for found in c.all("break")]
        notes = [f"compiled again, because {miss}" for miss in c.begin["misses"]]
        notes += [f"a graph runs in eager: {record['reason']}" for record in c.all("eager")]
        place = f"{Path(c.begin['file']).name}:{c.begin['line']}"
        rows.append(
            {
                "title": c.title,
                "place": place,
                "verdict": verdict,
                "tone": tone,
                "seconds": seconds_text(c.seconds),
                "notes": notes,
                "breaks": breaks,
                "open": bool(breaks),
            }
        )
    return Section(
        "frames",
        "Frames and breaks",
        render("frames.html", frames=rows),
        str(len(compiles)),
        "Every compile of a frame, in order. The number is that of the code and of its entry.",
    )


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
        (f"one graph of {frame['operations']} operations", "good")
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


def code(compiles: Sequence[Compile]) -> tuple[Section, dict[str, Any]]:
    """All stages side by side."""
    choices, texts = [], {}
    for c in compiles:
        for program in c.programs or [""]:
            panes = panes_of(c, program)
            if panes:
                name = f"panes-{c.number}-{program or 'none'}"
                choices.append((name, f"{c.title}, {program}" if program else c.title))
                texts[name] = panes
    # What has a program is what one looks for.
    choices.sort(key=lambda choice: choice[0].endswith("-none"))
    html = render("panes.html", choices=choices) if choices else Markup('<p class="note">No graph was compiled.</p>')
    note = "Point at a line to see what it came from (blue) and what became of it (green); a click keeps the marks. With keys: up and down choose a line, left and right go to the stages beside it, Escape ends it."
    return Section("code", "From source to program", html, str(len(choices)), note), texts


def programs(compiles: Sequence[Compile]) -> list[tuple[str, Compile, str]]:
    """Title, compile and kind of every program."""
    return [(f"{c.title}, {program}", c, program) for c in compiles for program in c.programs]


def fusion(compiles: Sequence[Compile]) -> Section:
    """The fusion graphs as pictures, and why loops were not fused."""
    parts = []
    for title, c, program in programs(compiles):
        record = c.last("schedule", program)
        if record is None:
            continue
        told = "".join(found["text"] for found in c.all("fusion", program))
        picture = pictures.fusion(record["steps"])
        why = (
            Markup("<details><summary>what joined what, and why not</summary><pre>%s</pre></details>") % told
            if told
            else Markup("")
        )
        parts.append((title, picture + why))
    html = (
        render("parts.html", name="fusion", label="program", parts=parts)
        if parts
        else Markup('<p class="note">Nothing was fused: programs came from the cache, or there are none.</p>')
    )
    return Section(
        "fusion",
        "Fusion",
        html,
        str(len(parts)),
        "A box is a kernel or a library call; an arrow, a buffer that one fills and another reads.",
    )


def memory(compiles: Sequence[Compile]) -> Section:
    """Planned memory beside eager's."""
    parts = []
    for title, c, program in programs(compiles):
        record = c.last("memory", program)
        if record is None or not record["planned"]:
            continue
        lives = c.last("lifetimes")
        wanted = [
            row["bytes"]
            for row in (lives or {"values": ()})["values"]
            if bool(row["backward"]) == (program == "backward")
        ]
        held = [value for _, value in record["planned"]]
        lines = [("planned", held)] + ([("eager (estimate)", wanted)] if wanted else [])
        said = Markup("<p>At most %s planned%s.</p>") % (
            bytes_text(max(held)),
            f", {bytes_text(max(wanted))} in eager" if wanted else "",
        )
        parts.append((title, Markup('<figure class="scroll">%s</figure>') % pictures.memory(lines) + said))
    html = (
        render("parts.html", name="memory", label="program", parts=parts)
        if parts
        else Markup('<p class="note">No program allocates anything.</p>')
    )
    note = (
        "Bytes of results and temporaries; inputs and parameters are the caller's and not counted. Eager's line lets each result of the traced graph live until its last "
        "reader has run. In a backward it begins with what the forward keeps, which the program is given as inputs."
    )
    return Section("memory", "Memory", html, note=note)


def kernels(compiles: Sequence[Compile]) -> Section:
    """The roofline, and the table of kernels and calls."""
    points, rows = [], []
    for title, c, program in programs(compiles):
        record = c.last("kernels", program)
        for row in record["kernels"] if record is not None else ():
            moved = row["bytes"] or row["moved"]
            point = {**row, "bytes": moved}
            points.append(point)
            took = row["seconds"]
            rate = moved / took if took and moved else None
            flops = row["flops"] / took if took and row["flops"] else None
            rows.append(
                (
                    row["name"], title, _places(row["stack"]), number(row["count"], str(row["count"])), number(moved, bytes_text(moved)),
                    number(row["flops"], number_text(row["flops"])), seconds(took), number(rate, f"{bytes_text(rate)}/s" if rate else ""),
                    number(flops, f"{number_text(flops)}FLOP/s" if flops else ""), row["note"],
                )
            )  # fmt: skip
    rows.sort(key=lambda row: -(row[6]["sort"] or 0))
    devices = {record["device"]: record for c in compiles for record in c.all("device")}
    parts = Markup("")
    for name, device in devices.items():
        parts += (
            Markup("<h3>%s</h3>")
            % f"{name}: {device['name']}, copies at {bytes_text(device['bandwidth'])}/s, products at {number_text(max(device['flops'].values()))}FLOP/s"
        )
        parts += Markup('<figure class="scroll">%s</figure>') % pictures.roofline(
            [p for p in points if p["device"] == name], device
        )
    heads = (
        "kernel or call",
        "program",
        "user's line",
        "#calls",
        "#bytes",
        "#operations",
        "#time",
        "#bytes/s",
        "#operations/s",
        "not measured",
    )
    note = "Each kernel and library call was timed by itself, on operands of its own, when it was compiled. Bytes and operations are the compiler's count; where a library call has none, bytes are those of its operands."
    return Section("kernels", "Kernels", parts + table(heads, rows, empty="no kernel"), str(len(rows)), note)


def _places(stack: Sequence[str] | None) -> str:
    return ", ".join(dict.fromkeys(Path(at.split(" in ")[0]).name for at in (stack or ())[:3]))


def guards(compiles: Sequence[Compile]) -> Section:
    """Guards, the dearest first."""
    rows = [
        (g["text"], c.title, seconds(g["seconds"]))
        for c in compiles
        for record in c.all("guards")
        for g in record["guards"]
    ]
    rows.sort(key=lambda row: -(row[2]["sort"] or 0))
    total = sum(row[2]["sort"] or 0 for row in rows)
    count, most = len(rows), 500
    said = (
        Markup("<p>%s</p>")
        % f"{count} guards, {seconds_text(total)} if each were checked by itself.{f' The dearest {most} are shown.' if count > most else ''}"
    )
    cells = [({"text": text, "sort": text, "class": "wide mono"}, title, cost) for text, title, cost in rows[:most]]
    note = "What must hold for an entry to be used. Each was timed by itself on the frame it was made from; guards of one entry share the way to an object, so that together they cost less."
    return Section(
        "guards", "Guards", said + table(("guard", "compile", "#time"), cells, empty="no guards"), str(count), note
    )


def recompiles(compiles: Sequence[Compile]) -> Section:
    """Why frames were compiled again."""
    rows = [
        (c.title, {"text": miss, "sort": miss, "class": "wide"}, seconds(c.seconds))
        for c in compiles
        for miss in c.begin["misses"]
    ]
    return Section(
        "recompiles",
        "Recompiles",
        table(
            ("compile", "the entry that was there did not fit, because", "#cost"),
            rows,
            empty="No frame was compiled again.",
        ),
        str(len({row[0] for row in rows})),
    )


def caches(trace: Trace) -> Section:
    """Hits and misses, and the reasons."""
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[int, str, str, str]] = set()
    whys = []
    for process, record in trace.of("cache"):
        if record["why"]:
            whys.append(
                (
                    f"[{record['compile']}]",
                    record["event"],
                    {"text": record["why"], "sort": record["why"], "class": "wide mono"},
                )
            )
        # A miss is looked up a second time under the lock.
        elif (at := (process.facts["pid"], record["compile"], record["key"], record["event"])) not in seen:
            seen.add(at)
            counts[record["entry"], record["event"]] += 1
    kinds = sorted({entry for entry, _ in counts})
    rows = [
        (
            kind,
            number(counts[kind, "hit"], str(counts[kind, "hit"])),
            number(counts[kind, "miss"], str(counts[kind, "miss"])),
        )
        for kind in kinds
    ]
    html = table(("kept", "#hits", "#misses"), rows, empty="Nothing was looked up.")
    if whys:
        html += Markup("<h3>Why not</h3>") + table(("compile", "what", "reason"), whys)
    return Section(
        "caches",
        "Caches",
        html,
        f"{sum(n for (_, e), n in counts.items() if e == 'hit')}/{sum(counts.values())}",
        "Look-ups in the store on disk: graphs are whole compiled graphs, kernels the libraries in them.",
    )


def cuda_graphs(trace: Trace) -> Section:
    """What was recorded as a CUDA graph, and why not."""
    rows = [
        (
            f"[{r['compile']}]",
            r["program"],
            r["decision"],
            {"text": r["reason"], "sort": r["reason"], "class": "wide"},
            r["position"],
        )
        for _, r in trace.of("cuda_graph")
    ]
    empty = 'None was asked for, or no program was called: mode="reduce-overhead" records them, on a GPU.'
    return Section(
        "cuda-graphs",
        "CUDA graphs",
        table(("compile", "program", "decision", "reason", "where"), rows, empty=empty),
        str(len(rows)),
    )


def events(compiles: Sequence[Compile]) -> Section:
    """Everything else that the packages told."""
    rows = []
    for c in compiles:
        for r in c.all("log"):
            text = ", ".join(f"{key} {value}" for key, value in r["fields"].items())
            rows.append(
                (
                    c.title,
                    r["artifact"] or r["level"],
                    r["event"],
                    {"text": text[:600], "sort": text[:80], "class": "wide"},
                )
            )
    return Section(
        "events",
        "Events",
        table(("compile", "kind", "event", "what"), rows[:2000], empty="no other events"),
        str(len(rows)),
        "Library calls with the reason, measurements, hints: what the logs of these names show.",
    )
