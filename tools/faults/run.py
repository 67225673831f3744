"""Seed each fault, let `flambeau bisect` name its stage and `flambeau minify` shrink it, and write down what they say.

In: `table.py`. Out: a line a fault, and with `--write` the table in `docs/seeded-faults.md`. Each fault has a store of its own, whose kernels are linked from a
common one: kernels are found by their source, so that those which the fault does not change are not compiled again; compiled graphs are not shared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from flambeau.cli.processes import run_group

from .overlay import ROOT, overlay
from .table import FAULTS, Fault

PROGRAMS = Path(__file__).with_name("programs")
DOCUMENT = ROOT / "docs" / "seeded-faults.md"
#: Operations that a minified program may have, and the share of the faults whose programs have to come to that.
MOST_OPERATIONS, NEEDED = 5, 0.9
#: That both tools may take on one fault.
LIMIT_SECONDS = 600.0
_BECAME = re.compile(r"(\d+) operations became (\d+) after (\d+) trials")


@frozen
class Outcome:
    """What the tools said of one fault; `operations` is -1 where nothing was shrunk, `fails` whether the small program fails with the fault and not without."""

    name: str
    expected: str
    found: str
    detail: str
    before: int
    operations: int
    fails: bool
    bisect_seconds: float
    minify_seconds: float

    @property
    def named(self) -> bool:
        """Whether the stage is right."""
        return self.found == self.expected

    @property
    def shrunk(self) -> bool:
        """Whether the program is small, and fails."""
        return self.fails and 0 <= self.operations <= MOST_OPERATIONS


def tried(fault: Fault, store: Path, seconds: float = LIMIT_SECONDS) -> Outcome:
    """Both tools on one fault, and whether what is left fails with it and not without."""
    with _faulty(fault, store) as (folder, environment):
        script = PROGRAMS / f"{fault.program}.py"
        slow = ["--slow"] if fault.slow else []
        small = folder / "small.py"
        bisected, minified, again = _tools(
            ["bisect", *slow, str(script)],
            ["minify", *slow, str(script), "--out", str(small)],
            ["script", str(small)],
            environment=environment,
            seconds=seconds,
        )
        found, _, detail = _line(bisected["said"], "at fault: ").partition(", ")
        sizes = _BECAME.search(minified["said"])
        before, operations = (int(sizes[1]), int(sizes[2])) if sizes else (-1, -1)
        fails = small.exists() and again["status"] != 0 and is_right(small, folder)
    return Outcome(
        fault.name, fault.stage, found, detail, before, operations, fails, bisected["seconds"], minified["seconds"]
    )


@contextmanager
def _faulty(fault: Fault, store: Path) -> Iterator[tuple[Path, Mapping[str, str]]]:
    """A folder, and the environment of a process that has the fault."""
    with tempfile.TemporaryDirectory(prefix="fault-") as made:
        folder = Path(made)
        own = folder / "store"
        if store.exists():
            skipped = shutil.ignore_patterns("graph", "locks", "tmp")
            shutil.copytree(store, own, copy_function=os.link, ignore=skipped)
        own.mkdir(mode=0o700, exist_ok=True)
        changed = overlay(fault.path, fault.before, fault.after, folder / "overlay")
        yield (
            folder,
            {
                **os.environ,
                **changed,
                "FLAMBEAU_CACHE_DIR": str(own),
                "OMP_NUM_THREADS": "1",
                "FLAMBEAU_SUPPRESS_ERRORS": "0",
            },
        )


def is_right(script: Path, folder: Path) -> bool:
    """Whether a script succeeds without a fault, in a process of its own."""
    environment = {"FLAMBEAU_CACHE_DIR": str(folder / "right"), "OMP_NUM_THREADS": "1", "FLAMBEAU_SUPPRESS_ERRORS": "0"}
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, **environment}, capture_output=True, check=False, timeout=300
    )
    return done.returncode == 0


def _tools(*commands: Sequence[str], environment: Mapping[str, str], seconds: float) -> list[dict[str, Any]]:
    """Run commands of `flambeau` one after the other; what `tools.py` says of each."""
    words = [word for command in commands for word in ("--", *command)][1:]
    try:
        command = [sys.executable, "-m", "tools.faults.tools", *words]
        done = run_group(command, environment=environment, seconds=seconds, folder=ROOT)
        said, errors = done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        said, errors = str(error.output), str(error.stderr)
    found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    late = {"status": 1, "seconds": seconds, "said": ""}
    if os.environ.get("FAULTS_VERBOSE"):
        print(said, errors, file=sys.stderr)
    return [*found, *([late] * (len(commands) - len(found)))]


def _line(text: str, beginning: str) -> str:
    return next((line.removeprefix(beginning) for line in text.splitlines() if line.startswith(beginning)), "")


def _fill(store: Path) -> None:
    """Run the programs without a fault, for their kernels."""
    with tempfile.TemporaryDirectory() as made:
        for script in sorted(PROGRAMS.glob("*.py")):
            if not is_right(script, Path(made)):
                raise SystemExit(f"{script.name} fails without a fault")
        shutil.copytree(Path(made) / "right", store)


def main(words: Sequence[str] | None = None) -> int:
    """Run the faults that are asked for; 1 where the tools fall short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--jobs", type=int, default=1, help="faults that are tried at a time")
    parser.add_argument("--results", type=Path, help="JSON lines; faults that stand there are not run again")
    parser.add_argument("--kept", action="store_true", help="run nothing: what stands in the results alone")
    parser.add_argument("--store", type=Path, help="a folder for kernels, kept; a temporary one without")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.relative_to(ROOT)}")
    arguments = parser.parse_args(words)
    faults = [fault for fault in FAULTS if arguments.only in fault.name]
    done: dict[str, Outcome] = {}
    if arguments.results is not None and arguments.results.exists():
        rows = (Outcome(**json.loads(line)) for line in arguments.results.read_text().splitlines())
        done = {row.name: row for row in rows}
    if arguments.kept:
        faults = [fault for fault in faults if fault.name in done]
    with tempfile.TemporaryDirectory(prefix="faults-") as made:
        store = arguments.store or Path(made) / "store"
        if not store.exists() and not arguments.kept:
            _fill(store)

        def one(fault: Fault) -> Outcome:
            outcome = done.get(fault.name) or tried(fault, store)
            print(_told(outcome), flush=True)
            if arguments.results is not None and fault.name not in done:
                with arguments.results.open("a") as file:
                    file.write(json.dumps(asdict(outcome)) + "\n")
            return outcome

        with ThreadPoolExecutor(arguments.jobs) as pool:
            outcomes = list(pool.map(one, faults))
    named, shrunk = sum(o.named for o in outcomes), sum(o.shrunk for o in outcomes)
    print(f"{named} of {len(outcomes)} stages named, {shrunk} shrunk to {MOST_OPERATIONS} operations or fewer")
    if arguments.write:
        from .document import document

        DOCUMENT.write_text(document(outcomes, MOST_OPERATIONS, len(FAULTS), LIMIT_SECONDS))
    return int(named < len(outcomes) or shrunk < NEEDED * len(outcomes))


def _told(outcome: Outcome) -> str:
    mark = "named" if outcome.named else "NOT NAMED"
    small = (
        f"{outcome.before} -> {outcome.operations}"
        if outcome.shrunk
        else f"NOT SHRUNK ({outcome.operations}, fails: {outcome.fails})"
    )
    return (
        f"{outcome.name}: {mark} {outcome.found or 'nothing'} {outcome.detail} (expected {outcome.expected}); {small};"
        f" {outcome.bisect_seconds:.0f} s and {outcome.minify_seconds:.0f} s"
    )
