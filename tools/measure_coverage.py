"""Which lines and branches of the packages' Python the tests run, each package held to a floor: `nox -s coverage_python`.

In: `run ARGUMENTS`, which starts pytest with these and measures it with all processes that it starts; several runs add up, `erase` begins anew. Then `report`.
Out: of each package the share of lines and branches that ran, beside its floor, and the files that have most left; the exit status is 1 where a package is
under its floor. `--json FILE` keeps the figures of every file.

    python -m tools.measure_coverage run -m "not slow and not gpu" packages/runtime/tests
    python -m tools.measure_coverage report --package runtime --worst 10

What is measured and how stands in `pyproject.toml`. The measure starts in each process by itself (`sitecustomize` on PYTHONPATH), so workers of pytest-xdist
and scripts in processes of their own count. It is a trace function: code that capture has replaced a frame with is traced like any other and belongs to
none of these files, and compiling, which runs with the hook aside, is what is measured. `sys.monitoring` would cost less and knows branches from Python 3.14 on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

ROOT = Path(__file__).parents[1]
DATA = ROOT / ".coverage_data"
#: Percent of lines and branches that the quick tests must run without a GPU; a point under what was measured on Python 3.12 in a run that was ended early.
FLOORS = {"api": 82, "autograd": 90, "capture": 88, "inductor": 91, "runtime": 90}


@frozen
class Covered:
    """How much of a file, or of a package, ran.

    Attributes:
        name: the path below `packages`, or the package.
        ran: lines and branches that ran.
        all: lines and branches that it has.
    """

    name: str
    ran: int
    all: int

    @property
    def percent(self) -> float:
        """Of nothing everything ran."""
        return 100 * self.ran / self.all if self.all else 100.0

    @property
    def left(self) -> int:
        """Lines and branches that did not run."""
        return self.all - self.ran

    @property
    def package(self) -> str:
        """The package that a file is of."""
        return self.name.partition("/")[0]


def environment(before: dict[str, str]) -> dict[str, str]:
    """Variables under which each process of Python measures itself; writes the module that starts it."""
    start = DATA / "start"
    start.mkdir(parents=True, exist_ok=True)
    (start / "sitecustomize.py").write_text("import coverage\n\ncoverage.process_startup()\n")
    path = os.pathsep.join(filter(None, [str(start), before.get("PYTHONPATH", "")]))
    return {
        **before,
        "PYTHONPATH": path,
        "COVERAGE_PROCESS_START": str(ROOT / "pyproject.toml"),
        "COVERAGE_FILE": str(DATA / "data"),
        "COVERED_TREE": str(ROOT),
    }


def run(arguments: Sequence[str]) -> int:
    """Pytest's exit status, every process measured."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, env=environment(dict(os.environ)), check=False
    ).returncode


def files_of(report: dict[str, Any]) -> list[Covered]:
    """The files of coverage's report."""
    found = []
    for path, facts in report["files"].items():
        name, of = Path(path).as_posix().rpartition("packages/")[2], facts["summary"]
        found.append(
            Covered(name, of["covered_lines"] + of["covered_branches"], of["num_statements"] + of["num_branches"])
        )
    return found


def packages_of(files: Iterable[Covered]) -> list[Covered]:
    """Sums of the files, by package."""
    found: dict[str, list[Covered]] = {}
    for file in files:
        found.setdefault(file.package, []).append(file)
    return [
        Covered(name, sum(file.ran for file in part), sum(file.all for file in part))
        for name, part in sorted(found.items())
    ]


def measured(out: Path) -> dict[str, Any]:
    """What all runs since the last `erase` measured, as coverage reports it; a file that none of them loaded is among it."""
    import coverage

    os.environ.update(COVERED_TREE=str(ROOT), COVERAGE_FILE=str(DATA / "data"))
    measure = coverage.Coverage(config_file=str(ROOT / "pyproject.toml"))
    parts = [str(path) for path in DATA.glob("data.*")]
    if parts:
        measure.combine([*parts, *([str(DATA / "data")] if (DATA / "data").exists() else [])], strict=True)
        measure.save()
    else:
        measure.load()
    measure.get_data().touch_files(str(path) for path in ROOT.glob("packages/*/src/**/*.py"))
    measure.json_report(outfile=str(out))
    report: dict[str, Any] = json.loads(out.read_text())
    return report


def shown(files: Sequence[Covered], floors: dict[str, int], worst: int) -> tuple[str, bool]:
    """The report, and whether each package of `floors` reaches its floor."""
    lines = ["package      ran   floor  left of all"]
    held = True
    sums = {one.name: one for one in packages_of(files)}
    for name, floor in floors.items():
        one = sums.get(name, Covered(name, 0, 1))
        under = one.percent < floor
        held &= not under
        lines.append(
            f"{name:<10}{one.percent:6.2f}% {floor:5}%  {one.left} of {one.all}{'  UNDER ITS FLOOR' if under else ''}"
        )
    for name in floors:
        most = sorted((file for file in files if file.package == name and file.left), key=lambda file: -file.left)
        lines += ["", f"most left in {name}"]
        lines += [f"{one.percent:6.1f}%  {one.left:4} of {one.all:4}  {one.name}" for one in most[:worst]]
    return "\n".join(lines), held


def main(words: Sequence[str]) -> int:
    """The command line."""
    if words[:1] == ["run"]:
        return run(words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m tools.measure_coverage", description="`run` takes pytest's arguments."
    )
    parser.add_argument("what", choices=("erase", "report", "run"))
    parser.add_argument("--package", action="append", choices=list(FLOORS), help="of these alone")
    parser.add_argument("--worst", type=int, default=12, help="files shown of each package")
    parser.add_argument("--json", type=Path, default=DATA / "report.json", help="where the figures of every file go")
    given = parser.parse_args(words)
    if given.what == "erase":
        for path in DATA.glob("data*"):
            path.unlink()
        return 0
    text, held = shown(
        files_of(measured(given.json)),
        {name: floor for name, floor in FLOORS.items() if given.package is None or name in given.package},
        given.worst,
    )
    print(text)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
