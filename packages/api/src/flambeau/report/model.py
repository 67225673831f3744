"""A trace as compiles, programs and spans of time.

In: `trace.Trace`. Out: `Compile` for each compile of a frame, `Span` for each stage. Where a process ended in the middle of a stage, the stage has no end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from ..trace.reader import Process, Record, Trace


@frozen
class Span:
    """One stretch of time: `begin` in seconds since 1970; `seconds` None: it never ended. `depth` is 0 for what lies in nothing else."""

    name: str
    begin: float
    seconds: float | None
    thread: int
    compile_id: str
    depth: int
    program: str = ""
    is_frame: bool = False


@define(eq=False)
class Compile:
    """One compile of one frame: what began it, its records, and its number in the report."""

    number: int
    process: Process
    begin: Record
    among_others: bool = False
    records: list[Record] = field(factory=list)

    @property
    def short(self) -> str:
        """ "[0/1]", with the process where the number alone does not say which."""
        return short_name(self.process, self.begin, among_others=self.among_others)

    @property
    def place(self) -> str:
        """ "model.py:12": where the function begins."""
        return place_of(self.begin)

    @property
    def is_again(self) -> bool:
        """Whether entries of the frame were there, and none fitted."""
        return bool(self.begin["misses"])

    @property
    def function(self) -> str:
        """The function as the program names it, with the module's class where it is a wrapper that does not say it, and the region's name where it has one."""
        name = plain_function(self.begin["function"]).replace(".<locals>", "")
        owner = self.begin.get("owner", "")
        before = [self.begin.get("region", ""), owner if f"{owner}." not in name else ""]
        return ": ".join([*filter(None, before), name])

    @property
    def title(self) -> str:
        """ "[0/1] step"."""
        return f"{self.short} {self.function}"

    def all(self, kind: str, program: str | None = None) -> Iterator[Record]:
        """Records of a kind, of one program where it is given."""
        return (r for r in self.records if r["kind"] == kind and (program is None or r.get("program", "") == program))

    def last(self, kind: str, program: str | None = None, **fields: Any) -> Record | None:
        """The last record of a kind with these fields: what a stage made in the end, where it was run several times."""
        found = [r for r in self.all(kind, program) if all(r.get(name) == value for name, value in fields.items())]
        return found[-1] if found else None

    @property
    def kernels(self) -> list[Mapping[str, Any]]:
        """A row for each kernel and library call of its programs."""
        return [row for record in self.all("kernels") for row in record["kernels"]]

    @property
    def programs(self) -> list[str]:
        """The programs that were made."""
        return list(dict.fromkeys(record["program"] for record in self.all("program")))

    @property
    def seconds(self) -> float | None:
        """From begin to end; None where it never ended."""
        end = self.last("frame_end")
        return None if end is None else end["time"] - self.begin["time"]


def plain_function(name: str) -> str:
    """A function's name; what follows a break belongs to the same function."""
    name, _, rest = name.partition(".resume_at_")
    return f"{name} after line {rest.split('.')[0]}" if rest else name


def short_name(process: Process, record: Record, *, among_others: bool) -> str:
    """The compile of a record, "[0/1]", with the process where there are several; "" for a record that belongs to no compile of the only one."""
    name = f"[{record['compile']}]" if record["compile"] else ""
    return f"{process.name} {name}".rstrip() if among_others else name


def place_of(record: Mapping[str, Any]) -> str:
    """A file's name and the line, of a record that names both."""
    return f"{Path(record['file']).name}:{record['line']}"


def seconds_of(compiles: Iterable[Compile]) -> float:
    """Of all together; one that never ended counts for nothing."""
    return sum(c.seconds or 0 for c in compiles)


def compiles_of(trace: Trace) -> list[Compile]:
    """Every compile, in the order of its beginning in its process."""
    found: list[Compile] = []
    for process in trace.processes:
        now: dict[str, Compile] = {}
        for record in process.records:
            name = record["compile"]
            if record["kind"] == "frame_begin":
                now[name] = Compile(len(found), process, record, len(trace.processes) > 1)
                found.append(now[name])
            elif name in now:
                now[name].records.append(record)
    return found


def stages_of(spans: Iterable[Span]) -> dict[str, list[float]]:
    """Stage -> the seconds of each time that it was gone through."""
    found: dict[str, list[float]] = defaultdict(list)
    for span in spans:
        if not span.is_frame:
            found[span.name].append(span.seconds or 0.0)
    return found


def spans_of(process: Process) -> list[Span]:
    """The stages of a process, and its frames, in the order in which they began."""
    started = float(process.facts["started"])
    open_ones: dict[int, list[tuple[str, Record]]] = defaultdict(list)
    spans: list[Span] = []

    def close(thread: int, name: str, end: float | None) -> None:
        stack = open_ones[thread]
        if not any(known == name for known, _ in stack):
            return
        while stack:
            known, record = stack.pop()
            seconds = None if end is None else end - record["time"]
            spans.append(
                Span(
                    known,
                    started + record["time"],
                    seconds,
                    thread,
                    record["compile"],
                    len(stack),
                    record.get("program", ""),
                    record["kind"] == "frame_begin",
                )
            )
            if known == name:
                return

    for record in process.records:
        kind, thread = record["kind"], record["thread"]
        if kind in ("stage_begin", "frame_begin"):
            open_ones[thread].append((record.get("stage") or record["function"], record))
        elif kind == "frame_end":
            close(
                thread,
                next((name for name, at in open_ones[thread] if at["kind"] == "frame_begin"), ""),
                record["time"],
            )
        elif kind == "stage_end" and record["stage"].startswith("compile "):
            # What is told at its end alone.
            begin = started + record["time"] - record["seconds"]
            spans.append(
                Span(record["stage"], begin, record["seconds"], thread, record["compile"], 0, record.get("program", ""))
            )
        elif kind == "stage_end":
            close(thread, record["stage"], record["time"])
    for thread, stack in open_ones.items():
        if stack:
            close(thread, stack[0][0], None)
    return sorted(spans, key=lambda span: (span.begin, span.depth))
