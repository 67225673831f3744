"""The sections of a report behind the opening: code, fusion, memory, kernels, guards, recompiles, caches, CUDA graphs, events.

In: a trace and its compiles. Out: `page.Section`s, and what the script shows of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..trace.reader import Trace
from ..units import bytes_text, counted, number_text, seconds_text
from . import pictures
from .cells import cut, number, seconds, shorter, table, whole, wide
from .links import panes_of
from .model import Compile, short_name
from .page import Section, render


def _first(parts: Sequence[tuple[str, Any, float]]) -> int:
    """The place of the one of (title, …, size) that one most likely came for: the largest forward."""
    return max(range(len(parts)), key=lambda at: (parts[at][0].endswith("forward"), parts[at][2]), default=0)


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
    if choices:
        sizes = [(title, name, sum(len(pane["lines"]) for pane in texts[name])) for name, title in choices]
        first = choices[_first(sizes)][0]
        html = render("panes.html", choices=choices, first=first)
    else:
        html = Markup('<p class="note">No graph was compiled.</p>')
    note = (
        "The same program at every stage, from your source (left) to the kernels and the steps that run (right). Point at a line, or click it to keep the marks: "
        "blue lines are what it came from, green ones what became of it. With keys: Tab to a stage, up and down choose a line, left and right go to the stages "
        "beside it, Escape takes the marks away."
    )
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
        parts.append((title, picture + why, len(record["steps"])))
    html = (
        render("parts.html", name="fusion", label="program", parts=parts, first=_first(parts))
        if parts
        else Markup('<p class="note">Nothing was fused: programs came from the cache, or there are none.</p>')
    )
    return Section(
        "fusion",
        "Fusion",
        html,
        str(len(parts)),
        "A box is a kernel, which computes several operations in one go, or a call of a library. An arrow is a buffer in memory that one fills and another reads: what "
        "was fused has no arrows inside. Point at a box to see what it computes.",
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
        peak = held.index(max(held))
        said = Markup("<p>At most %s planned, first at step %s of %s (%s)%s.</p>") % (
            bytes_text(max(held)),
            peak + 1,
            len(held),
            record["planned"][peak][0],
            f"; {bytes_text(max(wanted))} in eager" if wanted else "",
        )
        picture = Markup('<figure class="scroll" tabindex="0" aria-label="memory, scrolls">%s</figure>')
        parts.append((title, said + picture % pictures.memory(lines), max(held)))
    html = (
        render("parts.html", name="memory", label="program", parts=parts, first=_first(parts))
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
    devices = {record["device"]: record for c in compiles for record in c.all("device")}
    for _, c, program in programs(compiles):
        record = c.last("kernels", program)
        for row in record["kernels"] if record is not None else ():
            moved = row["bytes"] or row["moved"]
            point = {**row, "bytes": moved}
            points.append(point)
            took = row["seconds"]
            rate = moved / took if took and moved else None
            flops = row["flops"] / took if took and row["flops"] else None
            reached = _reached(point, devices)
            ops = ", ".join(row["ops"] or ())
            said = "" if ops in row["name"] else ops
            if row["note"]:
                said = f"{said}; not timed: {row['note']}".lstrip("; ")
            rows.append(
                (
                    seconds(took), number(reached, f"{reached:.0%}" if reached else ""), wide(row["name"], more=said),
                    _places(row["stack"]), f"{c.short} {program}", whole(row["count"]),
                    number(moved, bytes_text(moved)) | {"more": f"{bytes_text(rate)}/s" if rate else ""},
                    number(row["flops"], number_text(row["flops"])) | {"more": f"{number_text(flops)}FLOP/s" if flops else ""},
                )
            )  # fmt: skip
    rows.sort(key=lambda row: -(row[0]["sort"] or 0))
    parts = Markup("")
    for name, device in devices.items():
        parts += (
            Markup("<h3>%s</h3>")
            % f"{name}: {device['name']}, copies at {bytes_text(device['bandwidth'])}/s, products at {number_text(max(device['flops'].values()))}FLOP/s"
        )
        parts += Markup(
            '<figure class="scroll" tabindex="0" aria-label="roofline, scrolls">%s</figure>'
        ) % pictures.roofline([p for p in points if p["device"] == name], device)
    heads = ("#time", "#of the limit", "kernel or call", "line", "program", "#calls", "#bytes", "#operations")
    note = (
        "Each kernel and library call was timed by itself, on operands of its own, when it was compiled; the time is that of one call. Bytes and operations are the "
        "compiler's count; where a library call has none, bytes are those of its operands. The line in the picture is what this device was measured to do: kernels "
        "on it cannot be faster, those far below it wait for something else (a small kernel, for its launch), those above it found their operands in a cache."
    )
    return Section(
        "kernels",
        "Kernels",
        parts + table(heads, rows, empty="no kernel", name="kernels and calls"),
        str(len(rows)),
        note,
    )


def _reached(point: Mapping[str, Any], devices: Mapping[str, Mapping[str, Any]]) -> float | None:
    """The share of what the device could do: the least time for its bytes or its operations, over the time that was measured."""
    device = devices.get(point["device"])
    if device is None or not point["seconds"]:
        return None
    least = max((point["bytes"] or 0) / device["bandwidth"], (point["flops"] or 0) / max(device["flops"].values()))
    return least / point["seconds"] if least else None


def _places(stack: Sequence[str] | None) -> str:
    return ", ".join(dict.fromkeys(Path(at.split(" in ")[0]).name for at in (stack or ())[:3]))


def _guard(words: str, text: str) -> dict[str, Any]:
    """A cell with a guard in words, and as a condition where that says something else."""
    return wide(words, more="" if words.rstrip(".").lower() == text.lower() else text)


def guards(compiles: Sequence[Compile]) -> Section:
    """Guards, the dearest first."""
    rows = [(c, g) for c in compiles for record in c.all("guards") for g in record["guards"]]
    rows.sort(key=lambda row: -(row[1]["seconds"] or 0))
    total = sum(g["seconds"] or 0 for _, g in rows)
    count, most = len(rows), 500
    said = (
        Markup("<p>%s</p>")
        % f"{counted(count, 'guard')}, {seconds_text(total)} if each were checked by itself.{f' The dearest {most} are shown.' if count > most else ''}"
    )
    cells = [(seconds(g["seconds"]), _guard(g.get("words") or g["text"], g["text"]), c.title) for c, g in rows[:most]]
    note = (
        "What must hold for compiled code to be used: where one does not, the frame is compiled again. All are checked at every call, so their time is part of it. Each "
        "was timed by itself on the frame that it was made from; guards of one entry share the way to an object, so that together they cost less."
    )
    shown = table(("#time", "guard", "compile"), cells, empty="no guards", name="guards")
    return Section("guards", "Guards", said + shown, str(count), note)


def recompiles(compiles: Sequence[Compile]) -> Section:
    """Why frames were compiled again."""
    rows = [
        (seconds(c.seconds), c.title, wide(shorter(miss)), place)
        for c in compiles
        for place, miss in enumerate(c.begin["misses"])
    ]
    note = (
        "Compiled code is kept as entries of a frame. A call that fits none of them is compiled again; here is what did not fit, entry by entry. Sizes that change "
        "become symbolic on the second compile; mark_dynamic makes them so from the first."
    )
    shown = table(
        ("#took", "compile", "did not fit", "entry"),
        ((*row[:3], whole(row[3])) for row in rows),
        empty="No frame was compiled again.",
        name="reasons",
    )
    return Section("recompiles", "Recompiles", shown, str(len({row[1] for row in rows})), note)


def caches(trace: Trace) -> Section:
    """Hits and misses, and the reasons."""
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[int, str, str, str]] = set()
    whys = []
    for process, record in trace.of("cache"):
        if record["why"]:
            whys.append(
                (
                    short_name(process, record, among_others=len(trace.processes) > 1),
                    "not kept" if record["event"] == "not kept" else "missed",
                    wide(record["why"], mono=True),
                )
            )
        # A miss is looked up a second time under the lock.
        elif (at := (process.facts["pid"], record["compile"], record["key"], record["event"])) not in seen:
            seen.add(at)
            counts[record["entry"], record["event"]] += 1
    kinds = sorted({entry for entry, _ in counts})
    rows = [(kind, whole(counts[kind, "hit"]), whole(counts[kind, "miss"])) for kind in kinds]
    html = table(("kept", "#hits", "#misses"), rows, empty="Nothing was looked up.")
    if whys:
        html += Markup("<h3>Why not</h3>") + table(("compile", "was", "reason"), whys, name="reasons")
    hits = sum(amount for (_, event), amount in counts.items() if event == "hit")
    note = (
        "What was looked up in the store on disk. A graph that hits needs nothing but loading; kernels are the libraries in a graph that missed. For a miss, what is "
        "stored and nearest to it is compared with what was wanted: that is where the two differ. (Versions are those of torch, the processor and flambeau's sources.)"
    )
    return Section("caches", "Caches", html, f"{hits} of {sum(counts.values())}" if counts else "", note)


def cuda_graphs(trace: Trace) -> Section:
    """What was recorded as a CUDA graph, and why not."""
    several = len(trace.processes) > 1
    rows = [
        (short_name(process, r, among_others=several), r["program"], r["decision"], wide(r["reason"]), r["position"])
        for process, r in trace.of("cuda_graph")
    ]
    empty = 'None was asked for, or no program was called: mode="reduce-overhead" records them, on a GPU.'
    note = "A CUDA graph replays all launches of a program with one call. Here is which programs were recorded, and why others, or parts of them, were not."
    shown = table(("compile", "program", "decision", "reason", "where"), rows, empty=empty, name="decisions")
    return Section("cuda-graphs", "CUDA graphs", shown, str(len(rows)), note)


_MOST_EVENTS = 1000


def events(compiles: Sequence[Compile]) -> Section:
    """Everything else that the packages told."""
    rows = []
    for c in compiles:
        for r in c.all("log"):
            text = ", ".join(f"{key}: {value}" for key, value in r["fields"].items())
            rows.append(
                (
                    c.short,
                    r["artifact"] or r["level"],
                    r["event"],
                    wide(cut(text, 240)),
                )
            )
    first = f" The first {_MOST_EVENTS} of {len(rows)}." if len(rows) > _MOST_EVENTS else ""
    note = f"What else the compiler told: library calls with the reason, choices, hints. The kind is the name that FLAMBEAU_LOGS shows it under.{first}"
    shown = table(("compile", "kind", "event", "what"), rows[:_MOST_EVENTS], empty="no other events", name="events")
    return Section("events", "Events", shown, str(len(rows)), note)
