"""What surrounds a measurement: other processes, the processor's clock, the machine, the state of the tree.

In: the code that is timed, in a `with` block. Out: plain numbers for its record, and the reasons why a record must not be shown in a table.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Record = dict[str, Any]
#: Of one core, taken by others while something is timed.
MOST_LOAD = 0.25
#: The same loop after a measurement over before it, or the reverse.
MOST_DRIFT = 1.15
_PROC = Path("/proc")
_PACKAGES = ("torch", "triton", "transformers", "torchvision")
_TICKS = os.sysconf("SC_CLK_TCK")


def _busy_seconds() -> float:
    """Seconds that the cores on which this process may run have worked since the machine started; 0 where that is not told."""
    ticks = 0
    wanted = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        for line in (_PROC / "stat").read_text().splitlines():
            name, *numbers = line.split()
            if name in wanted:
                user, nice, system, _, _, irq, soft, steal = map(int, numbers[:8])
                ticks += user + nice + system + irq + soft + steal
    except (OSError, ValueError):
        return 0.0
    return ticks / _TICKS


def _own_seconds() -> float:
    """Seconds that this process and those below it have worked, compilers that are still there or have ended among them."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(folder.name)] = int(fields[1])
        seconds[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS
    return sum(spent for pid, spent in seconds.items() if os.getpid() in _ancestry(pid, parents))


def _ancestry(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid:
        yield pid
        pid = parents.get(pid, 0)


def _loop_seconds() -> float:
    """The fastest of a few equal loops of a millisecond: a yardstick of the clock."""
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        sum(range(50_000))
        best = min(best, time.perf_counter() - start)
    return best


@contextmanager
def watched() -> Iterator[Record]:
    """Fill the record with `others` (cores that other processes used) and `drift` (how much the clock changed), at the end of the block."""
    found: Record = {}
    loop = _loop_seconds()
    busy, own, start = _busy_seconds(), _own_seconds(), time.perf_counter()
    yield found
    wall = time.perf_counter() - start
    others = (_busy_seconds() - busy - (_own_seconds() - own)) / max(wall, 1e-9)
    again = _loop_seconds()
    found |= {"others": round(max(0.0, others), 3), "drift": round(max(loop, again) / min(loop, again), 3)}


def disturbance(found: Record) -> float:
    """How many times what may be in a table was exceeded, by load or by a change of the clock; at most 1 where neither was."""
    return max(found.get("others", 0.0) / MOST_LOAD, (found.get("drift", 1.0) - 1) / (MOST_DRIFT - 1))


def provenance(root: Path) -> Record:
    """Commit and day of a run, its command, machine and versions; `+` at the commit stands for changes that are not committed."""
    commit = _said(root, "git", "rev-parse", "--short=10", "HEAD") or "unknown"
    changed = "+" if _said(root, "git", "status", "--porcelain", "--untracked-files=no") else ""
    return {
        "commit": commit + changed,
        "date": datetime.now(UTC).date().isoformat(),
        "command": command_of("benchmarks", sys.argv[1:]),
        "machine": _machine(root),
        "versions": _versions(),
    }


def command_of(module: str, words: Sequence[str]) -> str:
    """What repeats a run of ``module``, wherever its records were written."""
    kept = [word for number, word in enumerate(words) if "--json" not in (word, *words[max(0, number - 1) : number])]
    return shlex.join(["python", "-m", module, *kept])


def _machine(root: Path) -> str:
    """Processor, cores, memory and GPUs in words."""
    try:
        lines = (_PROC / "cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = _said(root, "nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return "; ".join([f"{len(os.sched_getaffinity(0))} cores of {model}", f"{memory:.0f} GiB", *gpus])


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _said(root: Path, *command: str) -> str:
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def disturbed(records: Sequence[Record]) -> dict[str, list[str]]:
    """Workloads of which an engine was timed under load or while the clock changed, and how much."""
    found: dict[str, list[str]] = {}
    for record in records:
        workload = str(record.get("workload"))
        name = f"{workload}, {record.get('engine')}"
        if record.get("others", 0.0) > MOST_LOAD:
            found.setdefault(workload, []).append(f"{name}: other processes used {record['others']:.2f} cores")
        if record.get("drift", 1.0) > MOST_DRIFT:
            found.setdefault(workload, []).append(f"{name}: the clock changed by {record['drift']:.2f}x")
    return found


def objections(records: Sequence[Record]) -> list[str]:
    """Why no table may be made of these records; none for records from before surroundings were noted."""
    found = [reason for reasons in disturbed(records).values() for reason in reasons]
    runs = {(record["commit"], record["date"]) for record in records if "commit" in record}
    if len(runs) > 1:
        found.append("rows of several runs: " + ", ".join(f"{commit} of {date}" for commit, date in sorted(runs)))
    return found
