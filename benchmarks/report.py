"""`python -m benchmarks.report`: the tables of `RESULTS.md`, made of the runs kept in `results/`.

In: `results/NAME.json`. Out: between `<!-- results/NAME.json -->` and `<!-- end -->` of the page, the run's description, its table and what misses its
bar. The prose around it is by hand. `--check` changes nothing and fails where the page is not current; `--keep NAME RECORDS` first keeps the
run in RECORDS (a file written with `--json`) as `results/NAME.json`, or says why not.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from . import results
from .results import Kept
from .runner import CACHES, load
from .surroundings import Record
from .tables import Rows, engines_of, geometric_mean, rows_of

PAGE = Path(__file__).resolve().parent / "RESULTS.md"
_SECTION = re.compile(r"(<!-- results/([\w-]+)\.json -->\n)(.*?)(<!-- end -->)", re.DOTALL)
#: Above which share of the median the distance of the quartiles is no longer taken as calm.
WIDE = 0.1


@frozen
class Bar:
    """What a compiler's figure is held to, as a ratio: `over`'s figure by its own.

    Attributes:
        over: the engine it is compared with.
        least: the ratio at least.
        mean: whether the geometric mean of the rows is held to it, not each row.
    """

    over: str
    least: float
    mean: bool = False

    @property
    def words(self) -> str:
        """The bar in words."""
        if self.least == 1:
            return f"{'geometric mean not' if self.mean else 'no row'} slower than {self.over}"
        return f"each row at least {self.least:g} times as fast as {self.over}"


@frozen
class Layout:
    """How an experiment is shown: the unit of its times, the ratios beside them, further columns, bars."""

    unit: str
    scale: float
    over: tuple[str, ...]
    bars: tuple[Bar, ...]


LAYOUTS = {
    "overhead": Layout("µs", 1e6, ("torch.compile",), (Bar("torch.compile", 3),)),
    "steady_state": Layout(
        "ms", 1e3, ("eager",), (Bar("eager", 1), Bar("torch.compile", 1), Bar("torch.compile", 1, mean=True))
    ),
    "attention": Layout("µs", 1e6, ("torch.compile", "library"), (Bar("torch.compile", 1), Bar("library", 0.9))),
    "gemms": Layout("µs", 1e6, ("library",), (Bar("library", 0.95), Bar("library", 1, mean=True))),
}
#: What a table may be of -> in words.
_HOW = {
    "median": "per call, median of batches",
    "best": "per call, best of batches",
    "device_seconds": "of the device alone",
}
#: How many times as fast as torch.compile's the first call must be, by what is in the caches.
FIRST_CALL = {"cold": 5.0, "warm": 4.0}
#: Of the rate of a copy.
BANDWIDTH = 0.9
MISSED = " **missed**"


def _engines(kept: Kept) -> list[str]:
    return engines_of(kept.rows)


def _figure(kept: Kept) -> str:
    return next(figure for figure in _HOW if any(figure in row for row in kept.rows))


def _time(record: Record | None, figure: str, layout: Layout) -> str:
    """A time and half the distance of its quartiles, or why there is none."""
    if record is None or figure not in record:
        return "error" if record and "error" in record else "-"
    shown = f"{record[figure] * layout.scale:.3f}"
    if figure == "median" and "low" in record:
        spread = (record["high"] - record["low"]) / 2 / record["median"]
        shown += f" ±{100 * spread:.0f} %" + (" (wide)" if spread > WIDE else "")
    return shown


def _number(record: Record | None, figure: str, scale: float, digits: int) -> str:
    return f"{record[figure] * scale:.{digits}f}" if record and figure in record else "-"


def _ratio(row: dict[str, Record], over: str, engine: str, figure: str) -> float | None:
    above, below = row.get(over, {}).get(figure), row.get(engine, {}).get(figure)
    return above / below if above and below else None


def _table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "| --- |" + " ---: |" * (len(headings) - 1)
    for line in lines:
        yield "| " + " | ".join(line) + " |"


def _peer(engine: str) -> str:
    """torch.compile in the mode that flambeau has."""
    return engine.replace("flambeau", "torch.compile")


def _over(name: str, engine: str) -> str:
    return _peer(engine) if name == "torch.compile" else name


def _times(kept: Kept) -> Iterator[str]:
    """Times of calls, ratios, and where they are known first calls and memory."""
    layout, figure, rows = LAYOUTS[kept.experiment], _figure(kept), rows_of(kept.rows)
    engines = _engines(kept)
    compilers = [engine for engine in engines if engine not in ("eager", "library")]
    ours = [engine for engine in engines if engine.startswith("flambeau")]
    pairs = [
        (o, c) for o in layout.over for c in compilers if o in engines and o != c and (c in ours or o != "library")
    ]
    spread = " ± half the distance of the quartiles" if any("low" in row for row in kept.rows) else ""
    yield f"{layout.unit} {_HOW[figure]}{spread}."
    yield ""
    extra = [(engine, *column) for column in _EXTRA for engine in engines if _has(kept.rows, engine, column[1])]
    headings = ["workload", *engines, *(f"{o} / {c}" for o, c in pairs), *(f"{head}: {e}" for e, head, *_ in extra)]
    lines = []
    for label, row in rows.items():
        ratios = [_judged(_ratio(row, o, c, figure), _bar(layout, o, False) if c in ours else None) for o, c in pairs]
        further = [_number(row.get(engine), name, scale, digits) for engine, _, name, scale, digits in extra]
        lines.append([label, *(_time(row.get(e), figure, layout) for e in engines), *ratios, *further])
    if len(rows) > 1 and pairs:
        means = [_mean(rows, o, c, figure) for o, c in pairs]
        lines.append([f"geometric mean of {len(rows)}", *("" for _ in engines), *means, *("" for _ in extra)])
    yield from _table(headings, lines)
    yield ""
    yield from _held(layout.bars, rows, ours, figure)
    yield from _memory(rows, ours)
    if loads := [row["first_others"] for row in kept.rows if "first_others" in row and row["engine"] in compilers]:
        yield f"While first calls were measured, other processes took up to {max(loads):.1f} cores."


#: Heading, figure, factor and digits of the columns that stand behind the times.
_EXTRA = (
    ("first call s", "first", 1.0, 2),
    ("peak MiB", "peak_bytes", 2**-20, 1),
    ("reserved MiB", "reserved_bytes", 2**-20, 0),
)


def _has(rows: Sequence[Record], engine: str, figure: str) -> bool:
    return not (figure == "first" and engine == "eager") and any(
        row["engine"] == engine and figure in row for row in rows
    )


def _bar(layout: Layout, over: str, mean: bool) -> float | None:
    return next((bar.least for bar in layout.bars if bar.over == over and bar.mean == mean), None)


def _judged(value: float | None, least: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" + (MISSED if least is not None and value < least else "")


def _mean(rows: Rows, over: str, engine: str, figure: str) -> str:
    found = [ratio for row in rows.values() if (ratio := _ratio(row, over, engine, figure))]
    return f"{geometric_mean(found):.2f}" if found else "-"


def _held(bars: Sequence[Bar], rows: Rows, engines: Sequence[str], figure: str, when: str = "") -> Iterator[str]:
    """One line for each bar and engine: held, or which rows miss it."""
    for engine in engines:
        for bar in bars:
            over = _over(bar.over, engine)
            ratios = {label: ratio for label, row in rows.items() if (ratio := _ratio(row, over, engine, figure))}
            if not ratios:
                continue
            mean = geometric_mean(list(ratios.values()))
            missed = {label: ratio for label, ratio in ratios.items() if ratio < bar.least}
            if bar.mean:
                verdict = f"{mean:.2f}" + (MISSED if mean < bar.least else "")
            else:
                verdict = _list(missed)
            yield f"- {engine}{when}, bar: {bar.words.replace(bar.over, over)}: {verdict}"


def _memory(rows: Rows, engines: Sequence[str]) -> Iterator[str]:
    """Which rows take more memory than eager; with graphs recorded, more reserved memory."""
    for engine in engines:
        name = "reserved_bytes" if "/" in engine else "peak_bytes"
        both = {k: (r[engine].get(name), r.get("eager", {}).get(name)) for k, r in rows.items() if engine in r}
        known = {
            label: (mine, eager) for label, (mine, eager) in both.items() if mine is not None and eager is not None
        }
        more = [
            f"`{label}` ({mine / 2**20:.1f} MiB, eager {eager / 2**20:.1f})"
            for label, (mine, eager) in known.items()
            if mine > 1.001 * eager
        ]
        if known:
            verdict = f"{MISSED.strip()} by {', '.join(more)}" if more else "held"
            yield f"- {engine}, bar: no row takes more memory than eager: {verdict}"


def _list(missed: dict[str, float], digits: int = 2) -> str:
    if not missed:
        return "held"
    return f"{MISSED.strip()} by " + ", ".join(f"`{label}` ({value:.{digits}f})" for label, value in missed.items())


def _first_calls(kept: Kept) -> Iterator[str]:
    """First calls by what is in the caches, and what the machine pays once."""
    states = [state for state in CACHES if any(row["cache"] == state for row in kept.rows)]
    engines, by_state = _engines(kept), {s: rows_of([r for r in kept.rows if r["cache"] == s]) for s in states}
    labels = list(dict.fromkeys(label for rows in by_state.values() for label in rows))
    peers = [(e, _peer(e)) for e in engines if e.startswith("flambeau") and _peer(e) in engines]
    yield "Seconds of the first call beyond one call of eager, by what is in the caches: nothing (new), what another program left (cold), the"
    yield "program itself (warm). It includes importing the compiler, not importing torch."
    yield ""
    headings = ["workload"]
    for state in states:
        headings += [f"{state}: {engine}" for engine in engines] + [f"{peer} / {engine}" for engine, peer in peers]
    lines = []
    for label in labels:
        line = [label]
        for state, rows in by_state.items():
            row = rows.get(label, {})
            line += [_number(row.get(engine), "first", 1.0, 2) for engine in engines]
            line += [_judged(_ratio(row, peer, e, "first"), FIRST_CALL.get(state)) for e, peer in peers]
        lines.append(line)
    yield from _table(headings, lines)
    yield ""
    for state, rows in by_state.items():
        if state in FIRST_CALL:
            yield from _held(
                [Bar("torch.compile", FIRST_CALL[state])], rows, [e for e, _ in peers], "first", f", {state}"
            )
    yield _one_time_costs(by_state, engines)


def _one_time_costs(by_state: dict[str, Rows], engines: Sequence[str]) -> str:
    """What only a machine's first program pays, by engine."""
    found = [
        f"{engine} {new[engine]['first'] - cold[engine]['first']:.2f} s"
        for label, new in by_state.get("new", {}).items()
        for cold in [by_state.get("cold", {}).get(label, {})]
        for engine in engines
        if "first" in new.get(engine, {}) and "first" in cold.get(engine, {})
    ]
    if not found:
        return "The machine's one-time costs (new less cold) were not measured apart: torch.compile's cold calls may hold its precompiled header."
    return f"The machine's one-time costs (new less cold): {', '.join(found)}."


def _bandwidth(kept: Kept) -> Iterator[str]:
    """Device time and share of the copy's rate."""
    engines, rows = _engines(kept), rows_of(kept.rows)
    yield "µs of device time, and what share of a copy's rate that is."
    yield ""
    headings = ["op", "MB", *(f"{engine} µs" for engine in engines), *(f"{engine} % of copy" for engine in engines)]
    lines = []
    for label, row in rows.items():
        size = next((record["bytes"] / 1e6 for record in row.values() if "bytes" in record), 0.0)
        shares = [_share(row.get(engine), engine) for engine in engines]
        times = [_number(row.get(engine), "device_seconds", 1e6, 1) for engine in engines]
        lines.append([label, f"{size:.1f}", *times, *shares])
    yield from _table(headings, lines)
    yield ""
    for engine in (engine for engine in engines if engine != "eager"):
        shares = {r["workload"]: 100 * r["share"] for r in kept.rows if r["engine"] == engine and "share" in r}
        missed = {label: share for label, share in shares.items() if share < 100 * BANDWIDTH}
        mean = sum(shares.values()) / len(shares)
        bar = (
            f"; bar: each at least {100 * BANDWIDTH:.0f} %: {_list(missed, 1)}" if engine.startswith("flambeau") else ""
        )
        yield f"- {engine}: {mean:.1f} % in the mean{bar}"


def _share(record: Record | None, engine: str) -> str:
    if record is None or "share" not in record:
        return "error" if record and "error" in record else "-"
    missed = MISSED if engine.startswith("flambeau") and record["share"] < BANDWIDTH else ""
    return f"{100 * record['share']:.1f}{missed}"


SHOWN: dict[str, Callable[[Kept], Iterator[str]]] = {
    "overhead": _times,
    "steady_state": _times,
    "attention": _times,
    "gemms": _times,
    "compile_time": _first_calls,
    "bandwidth": _bandwidth,
}


def section(kept: Kept) -> str:
    """What stands between the marks of a run."""
    versions = ", ".join(f"{name} {version}" for name, version in kept.versions.items())
    head = [f"`{kept.command}`", f"commit {kept.commit}, {kept.date}", kept.machine, versions]
    if kept.transcribed:
        head.append(f"**transcribed**: {kept.transcribed}")
    elif any("others" in row for row in kept.rows):
        others, drift = (max((row.get(name, 0.0) for row in kept.rows), default=0.0) for name in ("others", "drift"))
        head.append(
            f"while timed, other processes took at most {others:.2f} cores and the clock changed by at most {drift:.2f}x"
        )
    if kept.left_out:
        head.append(f"left out, for they were disturbed: {'; '.join(kept.left_out)}")
    return "\n".join([";\n".join(head) + ".", "", *SHOWN[kept.experiment](kept), ""])


def written(page: str, folder: Path) -> str:
    """The page with every section made anew; each kept run must have its place, each place its run."""
    wanted = {path.stem for path in folder.glob("*.json")}
    places = [name for _, name, _, _ in _SECTION.findall(page)]
    if sorted(places) != sorted(wanted):
        raise ValueError(f"places for {sorted(places)}, kept runs {sorted(wanted)}: one place for each")
    return _SECTION.sub(lambda found: found[1] + section(results.read(folder / f"{found[2]}.json")) + found[4], page)


def main(words: Sequence[str] | None = None) -> int:
    """Keep a run if asked to, then write the page or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where the page is not current; write nothing")
    parser.add_argument(
        "--keep", nargs=2, metavar=("NAME", "RECORDS"), help="keep the run in RECORDS as results/NAME.json"
    )
    arguments = parser.parse_args(words)
    if arguments.keep:
        name, records = arguments.keep
        try:
            run = [record for record in load(Path(records)) if record["experiment"] in SHOWN]
            results.save(results.condensed(run), results.FOLDER / f"{name}.json")
        except results.Refused as refused:
            print(f"not kept:\n{refused}")
            return 1
    page = PAGE.read_text()
    current = written(page, results.FOLDER)
    if arguments.check:
        print(
            "RESULTS.md is current" if page == current else "RESULTS.md is not current: run python -m benchmarks.report"
        )
        return int(page != current)
    PAGE.write_text(current)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
