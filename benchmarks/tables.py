"""Tables of records: one row per workload, one column per engine, ratios and their geometric means.

In: records as `runner.py` returns or loads them. Out: text on standard output. A figure that is missing shows why, and stays
out of the means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .surroundings import objections

Record = dict[str, Any]
Rows = dict[str, dict[str, Record]]
#: Relative errors above these are marked: rounding of the format, and some room for another order of sums.
TOLERANCE = {"float32": 5e-3, "bfloat16": 1e-1, "float16": 2e-2, "autocast": 1e-1}


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean of logarithms; nan for no value."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def engines_of(records: Iterable[Record]) -> list[str]:
    """The engines in the records, eager first, ours last."""
    names = dict.fromkeys(record["engine"] for record in records)
    return sorted(names, key=lambda name: (name.startswith("flambeau"), name.startswith("torch.compile"), "/" in name))


def rows_of(records: Iterable[Record]) -> Rows:
    """Label of the workload -> engine -> record. The label says which number format it is, where that is not float32."""
    groups: dict[tuple[str, bool, str], dict[str, Record]] = {}
    for record in records:
        key = record["workload"], bool(record.get("train")), record.get("dtype", "")
        groups.setdefault(key, {})[record["engine"]] = record
    rows: Rows = {}
    for (name, train, dtype), by_engine in groups.items():
        written = dtype or next((r["format"] for r in by_engine.values() if "format" in r), "float32")
        suffix = "" if written == "float32" or "bf16" in name else f" {written}"
        rows[f"{name}{suffix}{' (train)' if train else ''}"] = by_engine
    return rows


def _number(record: Record | None, figure: str, unit: float) -> float:
    value = (record or {}).get(figure)
    return math.nan if value is None else value * unit


def _cell(record: Record | None, figure: str, unit: float, digits: int) -> str:
    if record is None:
        return "-"
    if figure not in record:
        return "error" if "error" in record else "-"
    return f"{record[figure] * unit:.{digits}f}"


def _ratio(above: float, below: float) -> str:
    return "-" if math.isnan(above) or math.isnan(below) else f"{above / below:.2f}x"


def table(
    records: Sequence[Record],
    figure: str,
    *,
    unit: float = 1.0,
    title: str = "",
    digits: int = 3,
    beside_eager: bool = True,
) -> None:
    """Print a figure of every engine, each compiler as a ratio to eager, and flambeau beside torch.compile.

    Args:
        records: any number of experiments' records that have the figure.
        figure: the key to show, e.g. `"median"`.
        unit: multiplied in, e.g. `1e6` for microseconds.
        title: heading.
        digits: behind the point.
        beside_eager: show ratios to eager too.

    It ends with geometric means of the ratios, over the rows that have both figures. There is no table where `surroundings.py` objects.
    """
    if not records or _refused(records, title):
        return
    engines, rows = engines_of(records), rows_of(records)
    compilers = [engine for engine in engines if engine != "eager"]
    peers = [(p, o) for p in compilers for o in compilers if _pair(p, o)]
    shown = Table(title=title, title_justify="left")
    shown.add_column("workload")
    pairs = [("eager", compiler) for compiler in compilers if "eager" in engines and beside_eager] + peers
    for heading in (*engines, *(f"{a} / {b}" for a, b in pairs)):
        shown.add_column(heading, justify="right", max_width=18)
    ratios: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
    for label, by_engine in rows.items():
        values = {engine: _number(by_engine.get(engine), figure, unit) for engine in engines}
        for (a, b), found in ratios.items():
            if values[a] > 0 and values[b] > 0:
                found.append(values[a] / values[b])
        cells = [_cell(by_engine.get(engine), figure, unit, digits) for engine in engines]
        shown.add_row(label, *cells, *(_ratio(values[a], values[b]) for a, b in pairs))
    if pairs:
        means = [f"{geometric_mean(found):.3f}x of {len(found)}" if found else "-" for found in ratios.values()]
        lows = [f"{sum(ratio < 1.0 for ratio in found)}" if found else "-" for found in ratios.values()]
        shown.add_row("geomean", *("" for _ in engines), *means)
        shown.add_row("below 1.00x", *("" for _ in engines), *lows)
    _print(shown)


def _pair(peer: str, ours: str) -> bool:
    """Whether these are torch.compile and flambeau in the same mode."""
    return (
        peer.startswith("torch.compile")
        and ours.startswith("flambeau")
        and peer.partition("/")[2] == ours.partition("/")[2]
    )


def arithmetic_means(records: Sequence[Record], figure: str, title: str) -> None:
    """Print the mean of a figure for each compiler, over the workloads that all compilers have."""
    engines = [engine for engine in engines_of(records) if engine != "eager"]
    rows = [row for row in rows_of(records).values() if all(figure in row.get(engine, {}) for engine in engines)]
    if rows and engines and not objections(records):
        means = ", ".join(f"{e} {sum(row[e][figure] for row in rows) / len(rows):.2f}" for e in engines)
        print(f"{title}: {means} (over {len(rows)} workloads)\n")


def errors(records: Sequence[Record], title: str) -> None:
    """Print the relative errors beside eager of every compiler, and what raised. `!` marks what is above `TOLERANCE`."""
    engines, rows = engines_of(records), rows_of(records)
    shown = Table(title=title, title_justify="left")
    shown.add_column("workload")
    for engine in engines:
        shown.add_column(engine + (" (its own noise)" if engine == "eager" else ""), justify="right", max_width=60)
    for label, by_engine in rows.items():
        shown.add_row(label, *(_error_cell(by_engine.get(engine)) for engine in engines))
    _print(shown)


def _error_cell(record: Record | None) -> str:
    if record is None:
        return "-"
    if "error" in record:
        return str(record["error"])
    allowed = TOLERANCE[record.get("format", "bfloat16")]
    found = [record[key] for key in ("output_error", "gradient_error") if key in record]
    return " / ".join(f"{value:.1e}{'!' if value > allowed else ''}" for value in found)


def summary(records: Sequence[Record], figure: str = "median") -> None:
    """Everything a run of models shows: steady state, first call, peak memory, errors; inference and training apart."""
    for train in (False, True):
        part = [record for record in records if bool(record.get("train")) == train]
        if not part:
            continue
        for suite in dict.fromkeys(record.get("suite", "") for record in part):
            chosen = [record for record in part if record.get("suite", "") == suite]
            what = f"{suite or 'workloads'}, {'forward and backward' if train else 'inference'}"
            table(chosen, figure, unit=1e3, title=f"{what}: ms per call ({figure})")
            table(chosen, "first", title=f"{what}: first call, s", beside_eager=False, digits=2)
            arithmetic_means(chosen, "first", f"{what}: mean first call, s")
            table(chosen, "peak_bytes", unit=2**-20, title=f"{what}: peak memory, MiB", digits=1)
            if any("/" in record["engine"] for record in chosen):
                title = f"{what}: peak reserved memory, MiB (what lies in a graph's own pool is not counted above)"
                table(chosen, "reserved_bytes", unit=2**-20, title=title, digits=1)
            errors(chosen, f"{what}: largest relative error beside eager (outputs / gradients)")
            shortfalls(chosen, figure)
        if len({record.get("suite") for record in part}) > 1:
            what = "forward and backward" if train else "inference"
            together = [r for r in part if r.get("suite") != "vision"]
            print(f"transformers and ops together, {what}")
            shortfalls(together, figure)
        kernels(part)


def kernels(records: Sequence[Record]) -> None:
    """What the device ran in one call of each workload, where it was profiled: time of all kernels, and the longest ones."""
    profiled = [record for record in records if "top" in record]
    if not profiled:
        return
    table(profiled, "device_us", title="time of the device in one call, µs", digits=1)
    table(profiled, "kernels", title="kernels in one call", digits=0)
    for label, by_engine in rows_of(profiled).items():
        for engine, record in by_engine.items():
            print(f"\n{label}, {engine}: {record['device_us']:.0f} µs in {record['kernels']:.0f} kernels")
            for name, count, microseconds in record["top"]:
                print(f"  {microseconds:9.1f} µs in {count:5.0f}  {name}")


def _named(figures: dict[str, float], text: str) -> str:
    return ", ".join(f"{label} {text.format(value)}" for label, value in figures.items()) or "none"


def shortfalls(records: Sequence[Record], figure: str = "median") -> None:
    """Print, for each compiler, the geometric means over eager and the names of what is worse than eager or torch.compile."""
    rows = {} if objections(records) else rows_of(records)
    for engine in (name for name in engines_of(records) if name != "eager" and rows):
        peer = "torch.compile" + engine.removeprefix("flambeau") if engine.startswith("flambeau") else ""
        speed, slower, larger, later = [], {}, {}, {}
        ratios = []
        memory = "reserved_bytes" if "/" in engine else "peak_bytes"
        for label, row in rows.items():
            ours, eager, other = row.get(engine, {}), row.get("eager", {}), row.get(peer, {})
            if figure in ours and figure in eager:
                speed.append(eager[figure] / ours[figure])
                if speed[-1] < 1:
                    slower[label] = speed[-1]
            if figure in ours and figure in other:
                ratios.append(other[figure] / ours[figure])
            if memory in ours and ours[memory] > 1.001 * eager.get(memory, math.inf):
                larger[label] = ours[memory] / eager[memory]
            if "first" in ours and ours["first"] > other.get("first", math.inf):
                later[label] = ours["first"] / other["first"]
        failed = [label for label, row in rows.items() if "error" in row.get(engine, {})]
        print(f"{engine}: {geometric_mean(speed):.3f}x eager over {len(speed)} workloads" if speed else f"{engine}:")
        print(f"  below eager: {_named(slower, '{:.2f}x')}")
        print(f"  peak memory above eager: {_named(larger, '{:.2f}x')}")
        if ratios:
            print(f"  {geometric_mean(ratios):.3f}x {peer} over {len(ratios)} workloads")
            print(f"  first call above {peer}: {_named(later, '{:.2f}x')}")
        if failed:
            print(f"  failed: {', '.join(failed)}")
    print()


def tuned(records: Sequence[Record], figure: str = "median") -> None:
    """Everything a run of models in the compilers' default and tuned modes shows."""
    table(records, figure, unit=1e3, title=f"ms per call ({figure})")
    beside_best(records, figure)
    table(records, "first", title="first call, s", beside_eager=False, digits=2)
    errors(records, "largest relative error beside eager")
    kernels(records)


def beside_best(records: Sequence[Record], figure: str = "median") -> None:
    """Print how much faster each engine of ours is than torch.compile in the best of the modes that were measured."""
    rows = {} if objections(records) else rows_of(records)
    engines = engines_of(records)
    peers = [engine for engine in engines if engine.startswith("torch.compile")]
    for engine in (name for name in engines if name.startswith("flambeau")):
        ratios = {}
        for label, row in rows.items():
            best = min((row[peer][figure] for peer in peers if figure in row.get(peer, {})), default=None)
            if best is not None and figure in row.get(engine, {}):
                ratios[label] = best / row[engine][figure]
        if ratios:
            mean = geometric_mean(list(ratios.values()))
            print(f"{engine}: {mean:.3f}x the best of {', '.join(peers)} over {len(ratios)} workloads")
            print(f"  {_named(ratios, '{:.2f}x')}")


def bandwidth(records: Sequence[Record]) -> None:
    """Print bytes, device time, rate and share of the copy bandwidth of each op under each engine."""
    if _refused(records, "memory-bound ops"):
        return
    shown = Table(title="memory-bound ops: device time and share of the copy bandwidth", title_justify="left")
    engines, rows = engines_of(records), rows_of(records)
    shown.add_column("op")
    shown.add_column("MB", justify="right")
    for engine in engines:
        for heading in ("µs", "GB/s", "% of copy"):
            shown.add_column(f"{engine} {heading}", justify="right", max_width=14)
    for label, row in rows.items():
        size = next((record["bytes"] for record in row.values() if "bytes" in record), math.nan)
        cells = [cell for engine in engines for cell in _bandwidth_cells(row.get(engine))]
        shown.add_row(label, f"{size / 1e6:.1f}", *cells)
    _print(shown)
    for engine in engines:
        mine = [record for record in records if record["engine"] == engine]
        rates = sorted(record["copy_rate"] for record in mine if "copy_rate" in record)
        shares = [record["share"] for record in mine if "share" in record]
        if rates:
            low = {r["workload"]: 100 * r["share"] for r in mine if r.get("share", 1.0) < 0.85}
            print(
                f"{engine}: copy {rates[len(rates) // 2] / 1e9:.0f} GB/s, geomean {geometric_mean(shares):.1%} of it, "
                f"{len(low)} of {len(shares)} below 85 %: {_named(low, '{:.1f} %')}"
            )
        for record in mine:
            if "error" in record:
                print(f"{engine}, {record['workload']}: {record['error']}")


def _bandwidth_cells(record: Record | None) -> tuple[str, str, str]:
    if record is None or "share" not in record:
        return ("error" if record and "error" in record else "-", "-", "-")
    rate = record["bytes"] / record["device_seconds"]
    wrong = "!" if record.get("output_error", 0.0) > TOLERANCE["bfloat16"] else ""
    return (f"{record['device_seconds'] * 1e6:.1f}{wrong}", f"{rate / 1e9:.0f}", f"{100 * record['share']:.1f}")


def _refused(records: Sequence[Record], title: str) -> bool:
    """Say which run the records are of, or why no table is made of them."""
    reasons = objections(records)
    if reasons:
        print(f"{title}: no table, measured under load", *reasons, sep="\n  ")
    else:
        for commit, date in sorted({(r["commit"], r["date"]) for r in records if "commit" in r}):
            print(f"commit {commit}, {date}")
    return bool(reasons)


def _print(shown: Table) -> None:
    Console(width=190).print(shown)
