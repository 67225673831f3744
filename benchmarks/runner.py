"""Run requests in processes of their own and show them side by side.

In: a list of requests (experiment, workload, …). Out: one record per (request, engine), a printed table of ratios, a JSON file.
Engines take turns on each workload, so a drift of the machine's speed hits all three alike.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .engines import ENGINES

Record = dict[str, Any]


def measure(request: Record, cache: str, timeout: float = 600.0) -> Record:
    """One request in a fresh process; `cache` is the folder that holds every engine's disk cache."""
    environment = {
        **os.environ,
        "FLAMBEAU_CACHE_DIR": f"{cache}/flambeau",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "TRITON_CACHE_DIR": f"{cache}/triton",
    }
    command = [sys.executable, "-m", "benchmarks.measure", json.dumps(request)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {**request, "error": f"no result within {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {**request, "error": (done.stderr.strip().splitlines() or ["no output"])[-1][:300]}
    record: Record = json.loads(lines[-1])
    return record


def side_by_side(requests: Iterable[Record], *, engines: Sequence[str] = ENGINES, warm: bool = False) -> list[Record]:
    """Every request under every engine.

    Args:
        requests: records without `"engine"`.
        engines: which to run.
        warm: run each once first in the same cache folder and keep the second.
    """
    records = []
    console = Console(stderr=True)
    for request in requests:
        for engine in engines:
            with tempfile.TemporaryDirectory() as cache:
                if warm:
                    measure({**request, "engine": engine}, cache)
                record = measure({**request, "engine": engine}, cache)
            record["cache"] = "warm" if warm else "cold"
            records.append(record)
            console.print(f"[dim]{json.dumps(record)}[/dim]", highlight=False)
    return records


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean of logarithms; nan for no value."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(records: Sequence[Record], figure: str, *, unit: float = 1.0, title: str = "") -> None:
    """Print one row per workload: the figure of each engine, and flambeau against the other two.

    Args:
        records: what `side_by_side` returned.
        figure: the key to show, e.g. `"median"`.
        unit: multiplied in, e.g. `1e6` for microseconds.
        title: heading.
    """
    rows: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        label = record["workload"] + (" (train)" if record.get("train") else "")
        rows.setdefault((label, record.get("cache", "")), {})[record["engine"]] = record
    shown = Table(title=title)
    for heading in ("workload", *ENGINES, "flambeau / torch.compile", "eager / torch.compile", "eager / flambeau"):
        shown.add_column(heading, justify="left" if heading == "workload" else "right")
    ratios: dict[str, list[float]] = {"ours": [], "peer": []}
    for (label, _), by_engine in rows.items():
        values = {e: by_engine[e][figure] * unit if figure in by_engine.get(e, {}) else math.nan for e in ENGINES}
        eager, peer, ours = (values[e] for e in ENGINES)
        if not math.isnan(eager / ours):
            ratios["ours"].append(eager / ours)
        if not math.isnan(eager / peer):
            ratios["peer"].append(eager / peer)
        cells = [f"{values[e]:.3f}" if figure in by_engine.get(e, {}) else "error" for e in ENGINES]
        shown.add_row(label, *cells, f"{ours / peer:.3f}", f"{eager / peer:.2f}x", f"{eager / ours:.2f}x")
    if figure in ("median", "best"):
        means = {key: geometric_mean(values) for key, values in ratios.items()}
        shown.add_row("geomean", "", "", "", "", f"{means['peer']:.2f}x", f"{means['ours']:.2f}x")
    Console(width=150).print(shown)


def save(records: Sequence[Record], path: str | None) -> None:
    """Write the records as JSON when a path is given."""
    if path is not None:
        Path(path).write_text(json.dumps(list(records), indent=1) + "\n")
