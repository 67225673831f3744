"""Between capture and the reports: each compiled frame becomes log events and, where asked for, records.

In: capture's `CompileRecord`, one per compiled frame. Out: events for `FLAMBEAU_LOGS`, entries of a `Recorder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter

from torch import fx

from flambeau_capture import CompileRecord

from .accounting import note_compile
from .log import Deferred, logger
from .records import BreakReason, GraphRecord, Recorder
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
            reason = BreakReason(found.file, found.line, found.function, found.code, found.reason, found.hint)
            logger.info("graph_break", artifact="graph_breaks", **where, text=f"{reason}\n")
            if recorder is not None:
                recorder.breaks.append(reason)
        if record.graph is not None:
            for artifact, text in _TEXTS.items():
                logger.debug("graph", artifact=artifact, **where, code=Deferred(partial(text, record.graph)))
            if recorder is not None:
                recorder.graphs.append(_graph_record(record))
        if recorder is not None:
            recorder.guards += [str(guard) for guard in record.guards]
            recorder.spent("capture", record.trace_seconds)

    return observe


def _graph_record(record: CompileRecord) -> GraphRecord:
    inputs = sum(1 for node in record.graph.graph.nodes if node.op == "placeholder")
    return GraphRecord(record.graph.code, record.operations, inputs)
