"""Between capture and the reports: each compiled frame becomes log events and, where asked for, records.

In: capture's `CompileRecord`, one per compiled frame. Out: events for `FLAMBEAU_LOGS`, entries of a `Recorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter

from torch import fx

from flambeau_capture import BreakRecord, CompileRecord
from flambeau_capture.guards.explain import describe
from flambeau_capture.guards.spec import GuardSpec
from flambeau_capture.guards.words import sentence

from .accounting import note_compile
from .log import Deferred, logger
from .records import BreakReason, FrameRecord, GraphRecord, GuardRecord, Recorder, UserFrame
from .tables import graph_sizes, graph_table

_TEXTS: Mapping[str, Callable[[fx.GraphModule], str]] = {
    "graph_code": attrgetter("code"),
    "graph": graph_table,
    "graph_sizes": graph_sizes,
}
"""Artifact -> what it shows of a captured graph."""


def observer_of(recorder: Recorder | None, name: str | None) -> Callable[[CompileRecord], None]:
    """The observer of a region.

    Args:
        recorder: collects records when given.
        name: the region's label, part of every event.
    """

    def observe(record: CompileRecord) -> None:
        note_compile(record, name)
        where = {"region": name} if name else {}
        for found in record.breaks:
            reason = _break_reason(found)
            logger.info("graph_break", artifact="graph_breaks", **where, text=f"{reason}\n")
            if recorder is not None:
                recorder.breaks.append(reason)
        if record.skipped:
            at = {
                "function": record.code.co_qualname,
                "file": record.code.co_filename,
                "line": record.code.co_firstlineno,
            }
            logger.info("frame_in_python", artifact="fallbacks", **where, **at, reason=record.skipped)
        if record.graph is not None:
            for artifact, text in _TEXTS.items():
                logger.debug("graph", artifact=artifact, **where, code=Deferred(partial(text, record.graph)))
            if recorder is not None:
                recorder.graphs.append(_graph_record(record))
        if recorder is not None:
            recorder.guards += map(_guard_record, record.guards)
            recorder.frames.append(_frame_record(record, recorder))
            recorder.spent("capture", record.trace_seconds)

    return observe


def _graph_record(record: CompileRecord) -> GraphRecord:
    inputs = sum(1 for node in record.graph.graph.nodes if node.op == "placeholder")
    ops = tuple(_op_name(node) for node in record.graph.graph.nodes if node.op.startswith("call_"))
    return GraphRecord(record.graph.code, record.operations, inputs, ops)


def _op_name(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else str(getattr(node.target, "__name__", node.target))


def _break_reason(found: BreakRecord) -> BreakReason:
    place = found.file, found.line, found.function
    stack = tuple(UserFrame(*frame) for frame in found.stack)
    return BreakReason(*place, found.code, found.reason, found.hint, found.column, found.end_column, stack)


def _guard_record(guard: GuardSpec) -> GuardRecord:
    file, line = guard.position[:2] if guard.position is not None else ("", 0)
    return GuardRecord(type(guard).__name__, describe(guard), sentence(guard), file, line)


def _frame_record(record: CompileRecord, recorder: Recorder) -> FrameRecord:
    code = record.code
    return FrameRecord(
        code.co_qualname,
        code.co_filename,
        code.co_firstlineno,
        len(recorder.graphs) - 1 if record.graph is not None else None,
        record.entry,
        record.misses,
        record.skipped,
        record.effects,
        record.trace_seconds + record.backend_seconds,
    )
