"""Faults in flambeau's own sources, which its tools name and shrink: a slice of `nox -s faults`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.faults.overlay import edited
from tools.faults.run import tried
from tools.faults.table import FAULTS, SLICE, Fault

from .rows import calls


@calls("tools", "minifier", "bisector")
@pytest.mark.compiles(graphs=0)
@pytest.mark.parametrize("fault", SLICE, ids=lambda fault: fault.name)
def test_faults_are_named_and_shrunk(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is named, and what is left of the program is small, fails with the fault and does not without."""
    # What kernels compute counts here, and most of the time is that of their compiler.
    monkeypatch.setenv("FLAMBEAU_CXXFLAGS", "-O0")
    found = tried(fault, tmp_path / "store")
    assert found.named and found.shrunk, found


@pytest.mark.compiles(graphs=0)
def test_every_fault_applies() -> None:
    """The table follows the sources: each edit has its place, and each row a name of its own."""
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 30 and len(SLICE) >= 2
    for fault in FAULTS:
        edited(fault.path, fault.before, fault.after)
