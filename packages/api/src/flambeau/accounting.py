"""What this process has compiled so far, in numbers: `counters`, `compile_times`, `get_compilation_metrics`.

In: capture's record of each compiled frame, the seconds of each stage, hits and misses of the cache. Out: counts under the names that
`torch._dynamo.utils.counters` has them under, a table of seconds, one record a compile. Nothing is counted in a call that compiles nothing.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from typing import Literal, overload

from attrs import frozen

from flambeau_capture import CompileRecord

_KEPT = 64


@frozen
class CompilationMetrics:
    """One compile of one frame.

    Attributes:
        compile_id: the number of the code object in this process and of the entry, "0/1" for the first code's second.
        region: the name given to `flambeau.compile`.
        co_name, co_filename, co_firstlineno: whose frame it is.
        cache_size: entries that the code had before.
        start_time: seconds since the epoch.
        guard_count, graph_op_count, graph_node_count, graph_input_count: 0 where there was no graph.
        entire_frame_compile_time_s, backend_compile_time_s: the first includes the second.
        graph_breaks: why the graph ended, code and reason of each break.
        fail_reason: why the frame runs in eager, or "".
        recompile_reason: why the entries that there were did not fit, or "".
        recompile_user_contexts: what the program's hooks told of that.
    """

    compile_id: str
    region: str | None
    co_name: str
    co_filename: str
    co_firstlineno: int
    cache_size: int
    start_time: float
    guard_count: int
    graph_op_count: int
    graph_node_count: int
    graph_input_count: int
    entire_frame_compile_time_s: float
    backend_compile_time_s: float
    graph_breaks: tuple[str, ...]
    fail_reason: str
    recompile_reason: str
    recompile_user_contexts: tuple[str, ...]


counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""Counts since the process started or `counters.clear()` was called: `counters["stats"]["unique_graphs"]`, `["stats"]["calls_captured"]`,
`["frames"]["total"]` and `["ok"]`, `["graph_break"][reason]`, `["recompiles"][function]`, `["aot_autograd"]["total"]` and `["ok"]`,
`["inductor"]["fxgraph_cache_hit"]`, `["fxgraph_cache_miss"]` and `["fxgraph_cache_bypass"]`."""

_metrics: deque[CompilationMetrics] = deque(maxlen=_KEPT)
_seconds: defaultdict[str, list[float]] = defaultdict(list)


def note_compile(record: CompileRecord, region: str | None) -> None:
    """Count a compiled frame."""
    graph = record.graph
    counters["frames"]["total"] += 1
    counters["frames"]["ok"] += not record.skipped
    for found in record.breaks:
        counters["graph_break"][found.reason] += 1
    if record.misses:
        counters["recompiles"][record.code.co_qualname] += 1
    if graph is not None:
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += record.operations
    note_seconds("capture", record.trace_seconds)
    seconds = record.trace_seconds + record.backend_seconds
    nodes = () if graph is None else graph.graph.nodes
    _metrics.append(
        CompilationMetrics(
            compile_id=record.compile_id,
            region=region,
            co_name=record.code.co_name,
            co_filename=record.code.co_filename,
            co_firstlineno=record.code.co_firstlineno,
            cache_size=record.entry,
            start_time=time.time() - seconds,
            guard_count=len(record.guards),
            graph_op_count=record.operations,
            graph_node_count=len(nodes),
            graph_input_count=sum(node.op == "placeholder" for node in nodes),
            entire_frame_compile_time_s=seconds,
            backend_compile_time_s=record.backend_seconds,
            graph_breaks=tuple(f"{found.code}: {found.reason}" for found in record.breaks),
            fail_reason=record.skipped,
            recompile_reason="; ".join(record.misses),
            recompile_user_contexts=record.contexts,
        )
    )


def note_seconds(stage: str, seconds: float) -> None:
    """Add one run of a stage."""
    _seconds[stage].append(seconds)


def get_compilation_metrics() -> list[CompilationMetrics]:
    """The last 64 compiles of this process, the oldest first."""
    return list(_metrics)


def clear_compilation_metrics() -> None:
    """Forget the compiles so far."""
    _metrics.clear()


@overload
def compile_times(repr: Literal["str"] = "str", aggregate: bool = False) -> str: ...


@overload
def compile_times(repr: Literal["csv"], aggregate: bool = False) -> tuple[list[str], list[str]]: ...


def compile_times(repr: str = "str", aggregate: bool = False) -> str | tuple[list[str], list[str]]:
    """Seconds that each stage of compiling has taken in this process.

    Args:
        repr: "str" gives a table as text, "csv" a list of stages and one of values.
        aggregate: one sum a stage, in the place of the seconds of each run.

    Raises:
        ValueError: for another `repr`.
    """
    if repr not in ("str", "csv"):
        raise ValueError(f"repr is 'str' or 'csv', not {repr!r}")
    rows = {stage: [sum(runs)] if aggregate else runs for stage, runs in _seconds.items()}
    values = {stage: ", ".join(f"{seconds:.4f}" for seconds in runs) for stage, runs in rows.items()}
    if repr == "csv":
        return list(values), list(values.values())
    width = max(map(len, ("stage", *values)))
    lines = [f"{'stage':{width}}  seconds", *(f"{stage:{width}}  {runs}" for stage, runs in values.items())]
    return "\n".join(lines)
