"""What becomes of a program that ends its process: it is told, and the others are run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from . import run
from .registry import Program

pytestmark = pytest.mark.compiles(graphs=0)

_WORKER = """
import json, os, sys
names, path = json.loads(sys.argv[1]), sys.argv[2]
with open(path, "a") as lines:
    for name in names:
        print(json.dumps({"begins": name}), file=lines, flush=True)
        if name == "bad":
            os._exit(3)
        print(json.dumps({"name": name, "status": "ran"}), file=lines, flush=True)
"""


def test_a_crash_is_recorded_and_the_rest_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def started(compiler: str, variant: str, names: Sequence[str], lines: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", _WORKER, json.dumps(list(names)), str(lines)])

    monkeypatch.setattr(run, "_started", started)
    programs = [Program(name, "tests", list) for name in ("first", "bad", "last")]
    out = tmp_path / "out.json"
    run.run("eager", programs, out)
    found = json.loads(out.read_text())["programs"]
    assert {name: record["status"] for name, record in found.items()} == {
        "first": "ran",
        "bad": "crashed",
        "last": "ran",
    }
    assert "3" in found["bad"]["why"]


def test_records_of_other_programs_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        run, "_chunk", lambda compiler, variant, names: iter([(name, {"status": "ran"}) for name in names])
    )
    out = tmp_path / "out.json"
    for name in ("one", "two"):
        run.run("eager", [Program(name, "tests", list)], out)
    assert list(json.loads(out.read_text())["programs"]) == ["one", "two"]
