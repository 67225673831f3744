"""Reads what `writer.py` wrote: a folder of files, or one file.

In: a path. Out: `Trace`: a `Process` for each file, with its records. A line that was cut off by a crash ends its process's records; one in the middle that is no
record is counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ..errors import TraceUnreadable
from .schema import KINDS, VERSION

Record = Mapping[str, Any]


@frozen
class Process:
    """The records of one process.

    Attributes:
        facts: the record that begins the file.
        records: the others, in order.
        damaged: how many lines could not be read.
    """

    facts: Record
    records: tuple[Record, ...]
    damaged: int = 0

    @property
    def name(self) -> str:
        """ "rank 3" where it has a rank, else "process 4711"."""
        rank = self.facts.get("rank")
        return f"process {self.facts.get('pid')}" if rank is None else f"rank {rank}"

    def of(self, *kinds: str) -> Iterator[Record]:
        """Records of these kinds."""
        return (record for record in self.records if record["kind"] in kinds)


@frozen
class Trace:
    """Everything that was found under a path."""

    path: Path
    processes: tuple[Process, ...]

    def of(self, *kinds: str) -> Iterator[tuple[Process, Record]]:
        """Records of these kinds, with their processes."""
        return ((process, record) for process in self.processes for record in process.of(*kinds))


def read_trace(path: str | Path) -> Trace:
    """Read a folder of traces or a single file.

    Raises:
        TraceUnreadable: where there is none, or one of another version.
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not path.exists():
        raise TraceUnreadable(
            f"{path} holds no trace",
            hint="run the program with FLAMBEAU_TRACE=FOLDER, which writes FOLDER/flambeau-*.jsonl",
        )
    found = [read_process(file) for file in files]
    return Trace(path, tuple(sorted(found, key=lambda process: (process.facts["started"], process.facts["pid"]))))


def read_process(file: Path) -> Process:
    """Read one file. Raises `TraceUnreadable`."""
    records: list[Record] = []
    damaged = 0
    for line in file.read_bytes().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            damaged += 1
            continue
        if not isinstance(record, dict) or "kind" not in record:
            damaged += 1
        else:
            records.append(record)
    if not records or records[0]["kind"] != "process":
        raise TraceUnreadable(f"{file} is no trace: it does not begin with a process")
    version = records[0].get("version")
    if version != VERSION:
        raise TraceUnreadable(f"{file} has version {version}, this flambeau reads {VERSION}", hint="trace again")
    return Process(records[0], tuple(record for record in records[1:] if record["kind"] in KINDS), damaged)
