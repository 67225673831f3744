"""Runs that are kept: `results/NAME.json`, small enough for the repository, one run each.

In: the records of one run. Out: a file with what every record has in common at the top and one line for each measurement, and the same again
as `Kept`. Workloads that were disturbed while they were timed (`surroundings.py`) are left out and named, all engines of them; a run of which many were is not kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from .surroundings import Record, disturbed, objections

FOLDER = Path(__file__).resolve().parent / "results"
#: What says which measurement a row is, and what was measured; anything else in a record is for a look at the run itself.
NAMES = ("workload", "engine", "cache", "train", "format", "dtype")
FIGURES = (
    "median", "low", "high", "best", "samples", "others", "drift", "first", "first_others", "peak_bytes", "reserved_bytes",
    "output_error", "gradient_error", "bytes", "device_seconds", "share", "error",
)  # fmt: skip
#: Of a run's workloads, how many may be missing for having been disturbed.
MOST_LEFT_OUT = 0.25
#: Digits of a figure, more than any of them is good for.
DIGITS = 5


@frozen
class Kept:
    """One run.

    Attributes:
        experiment: whose table it makes.
        command: that repeats it.
        commit, date, machine, versions: of the run.
        left_out: why workloads of the run are missing.
        transcribed: for a run from before runs were kept: where its figures were read off, and what is not known of them.
        rows: a record for each workload, engine and state of the caches.
    """

    experiment: str
    command: str
    commit: str
    date: str
    machine: str
    versions: dict[str, str]
    rows: tuple[Record, ...]
    transcribed: str = ""
    left_out: tuple[str, ...] = ()


class Refused(ValueError):
    """The records are no run to show; the reasons, one a line."""


def condensed(records: Sequence[Record]) -> Kept:
    """The run that these records are of."""
    loud = disturbed(records)
    left_out: list[str] = []
    if len(loud) <= MOST_LEFT_OUT * len({record.get("workload") for record in records}):
        left_out = [reason for reasons in loud.values() for reason in reasons]
        records = [record for record in records if record.get("workload") not in loud]
    reasons = objections(records) or [
        f"{record.get('workload')}, {record.get('engine')}: no run is named, nor how quiet the machine was"
        for record in records
        if "error" not in record and not ("commit" in record and "versions" in record)
    ]
    experiments = sorted({record["experiment"] for record in records})
    if len(experiments) != 1:
        reasons.append(f"records of {', '.join(experiments) or 'nothing'}: one experiment is kept in one file")
    if reasons:
        raise Refused("\n".join(reasons))
    run = next(record for record in records if "commit" in record)
    common = {name: run[name] for name in ("command", "commit", "date", "machine", "versions")}
    return Kept(experiments[0], **common, rows=tuple(map(_row, records)), left_out=tuple(left_out))


def _row(record: Record) -> Record:
    names = {name: record[name] for name in NAMES if record.get(name)}
    return names | {name: _short(record[name]) for name in FIGURES if name in record}


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def save(kept: Kept, path: Path) -> None:
    """Write a run, one line a row, so that a diff shows which figures changed."""
    head = {name: value for name, value in asdict(kept).items() if name != "rows" and value}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in kept.rows)
    path.parent.mkdir(exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + ',\n "rows": [\n' + rows + "\n ]\n}\n")


def read(path: Path) -> Kept:
    """A kept run."""
    fields = json.loads(path.read_text())
    return Kept(**{**fields, "rows": tuple(fields["rows"]), "left_out": tuple(fields.get("left_out", ()))})
