"""The measure of coverage: what it adds up, and that a package under its floor is told (`tools/measure_coverage.py`)."""

from __future__ import annotations

import pytest
from tools.measure_coverage import FLOORS, Covered, files_of, packages_of, shown

from .test_structure import PACKAGES

pytestmark = pytest.mark.compiles(graphs=0)


def _file(lines: tuple[int, int], branches: tuple[int, int]) -> dict[str, dict[str, int]]:
    return {
        "summary": {
            "covered_lines": lines[0],
            "num_statements": lines[1],
            "covered_branches": branches[0],
            "num_branches": branches[1],
        }
    }


REPORT = {
    "files": {
        "/tree/packages/capture/src/flambeau_capture/cut.py": _file((8, 10), (1, 2)),
        "packages/capture/src/flambeau_capture/values/base.py": _file((1, 20), (0, 8)),
        "packages/runtime/src/flambeau_runtime/log.py": _file((5, 5), (0, 0)),
    }
}


def test_lines_and_branches_add_up() -> None:
    files = files_of(REPORT)
    assert files[0] == Covered("capture/src/flambeau_capture/cut.py", 9, 12)
    assert packages_of(files) == [Covered("capture", 10, 40), Covered("runtime", 5, 5)]


def test_floor_that_is_not_reached_is_told() -> None:
    text, held = shown(files_of(REPORT), {"capture": 26, "runtime": 100}, worst=1)
    assert not held and text.count("UNDER") == 1
    assert (
        "25.00%" in text and "27 of   28  capture/src/flambeau_capture/values/base.py" in text and "cut.py" not in text
    )
    assert shown(files_of(REPORT), {"capture": 25, "runtime": 100}, worst=1)[1]


def test_package_that_nothing_measured_is_under_its_floor() -> None:
    assert not shown(files_of(REPORT), {"inductor": 1}, worst=1)[1]


def test_every_package_has_a_floor() -> None:
    assert tuple(FLOORS) == PACKAGES
