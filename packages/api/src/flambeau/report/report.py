"""The report of a trace as one page, its pictures as files, and its timeline for Perfetto.

In: `trace.Trace`. Out: HTML, SVG, JSON::

    write_report(read_trace("trace"), Path("report.html"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..trace.reader import Trace
from . import opening, pictures, sections
from .compare import comparison
from .model import compiles_of, spans_of
from .page import render_page


def report_html(trace: Trace, other: Trace | None = None) -> str:
    """The page of a trace; with `other`, a section that compares the two comes first, and the rest is about `trace`."""
    compiles = compiles_of(trace)
    code, texts = sections.code(compiles)
    found = [
        opening.overview(trace, compiles),
        opening.timeline(trace),
        opening.frames(compiles),
        code,
        sections.fusion(compiles),
        sections.memory(compiles),
        sections.kernels(compiles),
        sections.recompiles(compiles),
        sections.guards(compiles),
        sections.caches(trace),
        sections.cuda_graphs(trace),
        sections.events(compiles),
    ]
    if other is not None:
        found.insert(0, comparison(trace, compiles, other, compiles_of(other)))
    subtitle = f"{trace.path}" + (f" beside {other.path}" if other is not None else "")
    return render_page("flambeau: what was compiled", found, subtitle=subtitle, texts=texts)


def write_pictures(trace: Trace, folder: Path) -> list[Path]:
    """The fusion graph of every program as an SVG file of its own."""
    written = []
    for number, (_, compile, program) in enumerate(sections.programs(compiles_of(trace))):
        record = compile.last("schedule", program)
        if record is not None:
            path = folder / f"fusion-{number}-{compile.begin['compile'].replace('/', '_')}-{program}.svg"
            path.write_text(pictures.standalone(pictures.fusion(record["steps"])), encoding="utf-8")
            written.append(path)
    return written


def perfetto(trace: Trace) -> dict[str, Any]:
    """The spans of all processes in the form of Chrome's trace viewer, which Perfetto opens; times are microseconds from the first."""
    spans = [(process, span) for process in trace.processes for span in spans_of(process)]
    zero = min((span.begin for _, span in spans), default=0.0)
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": process.facts["pid"], "args": {"name": process.name}}
        for process in trace.processes
    ]
    for process, span in spans:
        event = {
            "name": span.name, "cat": "compile", "pid": process.facts["pid"], "tid": span.thread, "ts": (span.begin - zero) * 1e6,
            "args": {"compile": span.compile_id, "program": span.program},
        }  # fmt: skip
        # A stage that never ended is one that only begins.
        events.append({**event, "ph": "B"} if span.seconds is None else {**event, "ph": "X", "dur": span.seconds * 1e6})
    return {"traceEvents": events, "displayTimeUnit": "ms"}
