"""Run requests in processes of their own, some of them at once, none disturbed while it is timed.

In: a list of requests (experiment, workload, engine, …). Out: one record per request, each written to a file as soon as it is
there, so that an interruption loses nothing. Engines take turns on each workload, so a drift of the machine's speed hits all
alike.
"""

from __future__ import annotations

import compileall
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from attrs import define, field
from rich.console import Console

from .engines import ENGINES
from .gate import Gate
from .surroundings import provenance

Record = dict[str, Any]
#: What is in the folders of caches when a process starts: nothing, as on a machine where the engine never ran; what the engine leaves
#: there for every program, of another graph's compilation (torch.compile: a precompiled header); the same program's own entries.
CACHES = ("new", "cold", "warm")
#: The experiments that measure a first call.
FIRST_CALLS = ("steady_state", "compile_time")
PACKAGES = ("flambeau", "flambeau_capture", "flambeau_autograd", "flambeau_inductor", "flambeau_runtime")
_NOT_SHOWN = ("top", "workloads", "command", "machine", "versions")
#: For each process that compiles, how many may wait to be timed: these hold memory of the device, and none of the machine's cores.
_WAITING = 2
#: What makes two requests the same measurement.
IDENTITY = ("experiment", "workload", "engine", "train", "dtype", "device", "cache", "tf32", "scale")


def byte_compile() -> None:
    """Bytecode for flambeau's modules, as installing a package makes it: a first call from a checkout would compile them all."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            compileall.compile_dir(folder, quiet=2)


def identity(record: Record) -> tuple[Any, ...]:
    """The values of `IDENTITY`, absent ones as None."""
    return tuple(record.get(key) or None for key in IDENTITY)


@define
class _Begun:
    """A folder of caches, and whether it is `filled`; who fills it holds the `lock`."""

    folder: str
    filled: bool = False
    lock: Lock = field(factory=Lock)


@define
class Runner:
    """How requests are run.

    Attributes:
        jobs: processes that compile at once; with several, as many again and more wait to be timed meanwhile.
        cores: none, or cores of which each workload gets one: all processes compile there side by side, then the engines of a workload take turns on its core.
        path: every record is appended to this file as a line of JSON; None for none.
        resume: take over records without error that the file already has.
        timeout: seconds in which a process starts and compiles, or is timed; waiting does not count.
        deadline: `time.monotonic()` after which no process is started; None for none.
        records: everything so far, in the order of the requests.
    """

    jobs: int = 1
    cores: Sequence[int] = ()
    path: Path | None = None
    resume: bool = False
    timeout: float = 600.0
    deadline: float | None = None
    records: list[Record] = field(factory=list)
    _gate: Gate = field(init=False)
    _lock: Lock = field(factory=Lock)
    #: Folders of caches in which an engine compiled another graph, by what decides what it leaves there.
    _begun: dict[tuple[Any, ...], _Begun] = field(factory=dict)
    _known: dict[tuple[Any, ...], Record] = field(factory=dict)
    _run: Record = field(factory=lambda: provenance(Path(__file__).resolve().parent))

    def __attrs_post_init__(self) -> None:
        self._gate = Gate(None if self.cores else self.jobs)
        if self.path is not None and self.path.exists():
            if self.resume:
                self._known = {identity(r): r for r in load(self.path) if "error" not in r}
            else:
                self.path.unlink()

    def run(self, requests: Iterable[Record], *, engines: Sequence[str] = ENGINES, cache: str = "cold") -> list[Record]:
        """Every request under every engine.

        Args:
            requests: records without `"engine"`.
            engines: which to run.
            cache: one of `CACHES`.
        """
        every = [{**request, "engine": engine, "cache": cache} for request in requests for engine in engines]
        if self.cores:
            every = [{**one, "core": self.cores[n // len(engines) % len(self.cores)]} for n, one in enumerate(every)]
        found: dict[int, list[Record]] = {}
        byte_compile()
        beside = self.jobs * (1 + _WAITING) if self.jobs > 1 else 1
        with ExitStack() as folders, ThreadPoolExecutor(len(every) if self.cores else beside) as pool:
            self._begun.clear()
            running = {pool.submit(self._one, request, number, folders): number for number, request in enumerate(every)}
            try:
                for future in as_completed(running):
                    found[running[future]] = future.result()
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                self.deadline = 0.0
        part = [record for number in sorted(found) for record in found[number]]
        self.records += part
        return part

    def _one(self, request: Record, rank: int, folders: ExitStack) -> list[Record]:
        known = self._known.get(identity(request))
        if known is not None:
            return [known]
        if self._is_late:
            return [{**request, "error": "not started: out of time"}]
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            for earlier in before(request):
                if earlier["workload"] == request["workload"]:
                    list(self._measure(earlier, cache, rank))
                else:
                    with suppress(shutil.Error):  # what is no file
                        shutil.copytree(self._after(earlier, rank, folders), cache, symlinks=True, dirs_exist_ok=True)
            if self._is_late:
                return [{**request, "error": "not started: out of time"}]
            records = []
            try:
                for record in self._measure(request, cache, rank):
                    record |= self._run
                    self._keep(record)
                    records.append(record)
            except (OSError, ValueError) as error:
                records.append({**request, "error": f"the runner: {error}"})
        return records

    @property
    def _is_late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _after(self, earlier: Record, rank: int, folders: ExitStack) -> str:
        """A folder of caches as `earlier` leaves it, which runs once for all that begin with the same."""
        key = tuple(earlier[name] for name in ("workload", "engine", "device"))
        with self._lock:
            if key not in self._begun:
                made = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
                self._begun[key] = _Begun(folders.enter_context(made))
            begun = self._begun[key]
        with begun.lock:
            if not begun.filled:
                list(self._measure(earlier, begun.folder, rank))
                begun.filled = True
        return begun.folder

    def _keep(self, record: Record) -> None:
        with self._lock:
            if self.path is not None:
                with self.path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            shown = {key: value for key, value in record.items() if key not in _NOT_SHOWN}
            Console(stderr=True).print(f"[dim]{json.dumps(shown)}[/dim]", highlight=False, soft_wrap=True)

    def _measure(self, request: Record, cache: str, rank: int) -> Iterator[Record]:
        """The records of one fresh process; `cache` is the folder that holds every engine's disk cache."""
        environment = {
            **os.environ,
            "FLAMBEAU_CACHE_DIR": f"{cache}/flambeau",
            "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
            "TRITON_CACHE_DIR": f"{cache}/triton",
            "TMPDIR": cache,  # torch.compile keeps its precompiled header in a folder of the machine's, below this one
            "PYTHONDONTWRITEBYTECODE": "",
        }
        if self.cores:
            environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.measure", json.dumps(request), "--gated"]
        pipe, owner = subprocess.PIPE, object()
        # What it imports takes cores, too: no process starts while another one is timed.
        self._gate.enter(owner, "compile")
        with tempfile.TemporaryFile("w+") as messages:
            process = subprocess.Popen(
                command, env=environment, stdin=pipe, stdout=pipe, stderr=messages, text=True, bufsize=1
            )
            alarm = _Alarm(process, self.timeout)
            count = 0
            try:
                for record in self._conversation(process, owner, request.get("core"), rank, alarm):
                    count += 1
                    yield record
                process.wait()
            finally:
                alarm.stop()
                process.kill()
                self._gate.leave(owner)
            if count == 0:
                messages.seek(0)
                last = (messages.read().strip().splitlines() or ["no output"])[-1]
                yield {**request, "error": f"exit status {process.returncode}: {last}"[:300]}

    def _conversation(
        self, process: subprocess.Popen[str], owner: object, place: int | None, rank: int, alarm: _Alarm
    ) -> Iterator[Record]:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("@"):
                alarm.stop()
                self._gate.enter(owner, line[1:].strip(), place, rank)
                alarm.start()
                try:
                    process.stdin.write("\n")
                    process.stdin.flush()
                except BrokenPipeError:
                    return
            elif line.startswith("{"):
                yield json.loads(line)


class _Alarm:
    """Ends a process `seconds` after the last start."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        self._process = process
        self._seconds = seconds
        self.start()

    def start(self) -> None:
        self._timer = Timer(self._seconds, self._process.kill)
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()


def before(request: Record) -> list[Record]:
    """What runs first in the same cache folders."""
    if request["cache"] == "warm":
        return [request]
    if request["cache"] == "new" or request["engine"] == "eager" or request["experiment"] not in FIRST_CALLS:
        return []
    return [{**request, "experiment": "compile_time", "workload": "another_graph", "train": False}]


def load(path: Path) -> list[Record]:
    """The records of a file that a runner wrote; of several of the same measurement, the last without error."""
    found: dict[tuple[Any, ...], Record] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        known = found.get(identity(record))
        if known is None or "error" in known or "error" not in record:
            found[identity(record)] = record
    return list(found.values())
