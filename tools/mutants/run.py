"""Run the tests once per fault, each time in a forked process whose imports are made wrong in one place.

torch and pytest are imported once; a child imports flambeau itself, through `_Faulty`. Nothing in the tree is changed. A child is stopped
after its stage's time without a fault, several times over: a hang counts as noticed, as a crash does. Kernels whose source the fault does
not change come from a store that the runs without faults filled; compiled graphs never do.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.machinery
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

from .operators import Fault, faults_of, mutated
from .stages import ROOT, STAGES, Stage, by_hand, drawn

SURVIVORS = Path(__file__).with_name("survivors.json")
#: The faults that CI runs, a line each ("stage: key"), each of another stage; those first that take longest to be noticed.
SLICE = Path(__file__).with_name("slice.txt")
NEEDED = 0.95
#: Bytes of addresses that a run may take beside what its process has: libraries of CUDA alone are several GiB.
_MEMORY = 8 << 30
#: Seconds between two looks at what runs.
_POLL = 0.05


class _Faulty(importlib.machinery.SourceFileLoader):
    """Loads one module with its fault."""

    fault: Fault

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = Path(path).read_text()
        return compile(mutated(self.fault, source), path, "exec", dont_inherit=True)


class _Finder:
    """Finds the faulty module before anybody else does."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.name = module_name(fault.path)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None:
            return None
        loader = _Faulty(name, spec.origin)
        loader.fault = self.fault
        spec.loader = loader
        return spec


def module_name(path: str) -> str:
    """The dotted name of `packages/x/src/a/b.py`."""
    parts = Path(path).with_suffix("").parts[3:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Run:
    """A stage's tests in a forked process, which is stopped after ``limit`` seconds."""

    def __init__(self, stage: Stage, fault: Fault | None, store: Path, limit: float) -> None:
        self.stage, self.fault, self._started = stage, fault, time.monotonic()
        self._limit = limit
        self._folder = tempfile.TemporaryDirectory(prefix="mutant-")
        self._child = os.fork()
        if self._child == 0:
            _be_child(stage, fault, store, Path(self._folder.name))

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started

    def verdict(self) -> str | None:
        """How the tests noticed, or "passed"; None as long as they run. Not to be asked again after that."""
        found = _ended(self._child, self.seconds > self._limit)
        if found == "failed":
            found = _first_failure(Path(self._folder.name) / "output") or found
        if found is not None:
            self._folder.cleanup()
        return found


def run_tests(stage: Stage, fault: Fault | None, store: Path, limit: float) -> tuple[str, float]:
    """The verdict of a stage's tests, and its seconds."""
    run = _Run(stage, fault, store, limit)
    while (verdict := run.verdict()) is None:
        time.sleep(_POLL)
    return verdict, run.seconds


def _be_child(stage: Stage, fault: Fault | None, store: Path, folder: Path) -> None:
    os.setsid()
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    own = folder / "store"
    if fault is None:
        own = store
    elif store.exists():
        shutil.copytree(store, own, copy_function=os.link, ignore=shutil.ignore_patterns("graph", "locks", "tmp"))
    own.mkdir(mode=0o700, exist_ok=True)
    os.environ["FLAMBEAU_CACHE_DIR"] = os.environ["FLAMBEAU_TEST_CACHE_DIR"] = str(own)
    if fault is not None:
        sys.meta_path.insert(0, _Finder(fault))  # type: ignore[arg-type]
    import pytest

    status = 3
    with contextlib.suppress(BaseException):
        status = pytest.main(
            [*stage.tests, "-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow and not gpu",
             f"--basetemp={folder / 'tmp'}"]
        )  # fmt: skip
    sys.stdout.flush()
    os._exit(int(status))


def _ended(child: int, is_late: bool) -> str | None:
    """How a process ended, which is stopped if it is late; None as long as it runs."""
    found, status = os.waitpid(child, os.WNOHANG)
    if not found:
        if not is_late:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return {0: "passed", 1: "failed", 2: "not collected", 4: "not started", 5: "no tests"}.get(
        code, f"ended with {code}"
    )


def _first_failure(output: Path) -> str | None:
    lines = output.read_text(errors="replace").splitlines()
    return next((line[:160] for line in lines if line.startswith(("FAILED ", "ERROR "))), None)


def every_fault() -> list[tuple[Stage, Fault]]:
    """The whole list, stage by stage."""
    return [(stage, fault) for stage in STAGES for fault in drawn(stage)]


def faults_of_slice() -> list[tuple[Stage, Fault]]:
    """The faults of CI, in the order of their file; `LookupError` for one that the sources have no place for any more.

    They are written down, and not drawn: a change of the sources must not bring in a fault that nobody has tried.
    """
    stages, chosen = {stage.name: stage for stage in STAGES}, []
    for line in SLICE.read_text().splitlines():
        name, _, key = line.partition(": ")
        path = key.partition("::")[0]
        faults = [*by_hand(stages[name]), *faults_of(path, (ROOT / path).read_text())]
        fault = next((fault for fault in faults if fault.key == key), None)
        if fault is None:
            raise LookupError(
                f"{SLICE.name}: no place any more for {key}; take another of `--list --stage {name}` that is noticed"
            )
        chosen.append((stages[name], fault))
    return chosen


def _chosen(arguments: argparse.Namespace) -> list[tuple[Stage, Fault]]:
    found = faults_of_slice() if arguments.slice else every_fault()
    found = [
        (stage, fault) for stage, fault in found if arguments.only in fault.key and arguments.stage in ("", stage.name)
    ]
    shard, _, count = arguments.shard.partition("/")
    return found[int(shard) :: int(count)][:: arguments.every]


@contextlib.contextmanager
def _store(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="mutants-") as made:
        yield Path(made)


def main(words: Sequence[str] | None = None) -> int:
    """Run the faults, print each verdict, hold the survivors against the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slice", action="store_true", help="the faults that CI runs")
    parser.add_argument("--stage", default="")
    parser.add_argument("--only", default="", help="faults whose key has this in it")
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no new fault after so long")
    parser.add_argument("--results", type=Path, help="JSON lines; faults that stand there are not run again")
    parser.add_argument("--store", type=Path, help="a folder for kernels, kept; a temporary one without")
    parser.add_argument("--jobs", type=int, default=1, help="faults that are tried at a time")
    parser.add_argument("--trust", action="store_true", help="the tests pass without a fault: do not see to it first")
    parser.add_argument("--list", action="store_true", help="print the faults and run nothing")
    arguments = parser.parse_args(words)
    faults = _chosen(arguments)
    if arguments.list:
        print("\n".join(f"{stage.name}: {fault.key}" for stage, fault in faults))
        return 0
    import torch  # noqa: F401  (once, for every child)

    done: dict[str, str] = {}
    if arguments.results is not None and arguments.results.exists():
        done = {row["fault"]: row["verdict"] for row in map(json.loads, arguments.results.read_text().splitlines())}
    with _store(arguments.store) as store:
        verdicts = _run_all(faults, done, store, arguments)
    return _judge(verdicts)


def _run_all(
    faults: list[tuple[Stage, Fault]], done: dict[str, str], store: Path, arguments: argparse.Namespace
) -> dict[str, str]:
    # Stages that are told by the same tests share a run without a fault.
    started, usual, verdicts = time.monotonic(), dict[tuple[str, ...], float](), dict[str, str]()
    running: list[_Run] = []
    for stage, fault in faults:
        if time.monotonic() - started > arguments.seconds:
            break
        if fault.key in done:
            verdicts[fault.key] = done[fault.key]
            continue
        _finish(running, arguments.jobs - 1, verdicts, arguments.results)
        if stage.tests not in usual and arguments.trust:
            usual[stage.tests] = 120.0
        if stage.tests not in usual:
            _finish(running, 0, verdicts, arguments.results)
            verdict, usual[stage.tests] = run_tests(stage, None, store, 1800)
            print(f"{stage.name}: {verdict} without a fault, {usual[stage.tests]:.0f} s", flush=True)
            if verdict != "passed":
                raise SystemExit(f"the tests of {stage.name} fail without a fault: {verdict}")
        running.append(_Run(stage, fault, store, arguments.jobs * (4 * usual[stage.tests] + 60)))
    _finish(running, 0, verdicts, arguments.results)
    return verdicts


def _finish(running: list[_Run], most: int, verdicts: dict[str, str], results: Path | None) -> None:
    """Wait until no more than ``most`` run, and note what the others gave."""
    while len(running) > most:
        for run in tuple(running):
            verdict = run.verdict()
            if verdict is None:
                continue
            running.remove(run)
            assert run.fault is not None
            key = run.fault.key
            verdicts[key] = "survived" if verdict == "passed" else verdict
            print(f"{run.stage.name}: {key}: {verdicts[key]} ({run.seconds:.0f} s)", flush=True)
            if results is not None:
                with results.open("a") as file:
                    file.write(json.dumps({"fault": key, "verdict": verdicts[key]}) + "\n")
        time.sleep(_POLL)


def _judge(verdicts: dict[str, str]) -> int:
    listed: dict[str, str] = json.loads(SURVIVORS.read_text())
    survivors = [key for key, verdict in verdicts.items() if verdict == "survived"]
    unlisted = [key for key in survivors if key not in listed]
    revived = [key for key in verdicts if key in listed and verdicts[key] != "survived"]
    noticed = len(verdicts) - len(survivors)
    share = noticed / max(len(verdicts) - (len(survivors) - len(unlisted)), 1)
    print(
        f"{noticed} of {len(verdicts)} faults noticed; {len(survivors) - len(unlisted)} survivors are listed, {len(unlisted)} are not"
    )
    for key in unlisted:
        print(f"survived: {key}")
    for key in revived:
        print(f"noticed, though listed as a survivor: {key}")
    return 1 if share < NEEDED or revived else 0
