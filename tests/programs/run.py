"""Run programs under one compiler in processes of their own, and gather the records.

In: a compiler and the programs. Out: a file of JSON: the compiler, the versions, and each program's record (`observe.py`). A program
that ends its process is recorded as crashed, and those behind it are run in a new process.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from .observe import Record
from .registry import Program
from .worker import SECONDS

_CHUNK = 30
#: A process that says nothing for so long does not hear its alarm.
_SILENCE = 2 * SECONDS


def run(compiler: str, programs: Sequence[Program], out: Path, variant: str = "plain") -> dict[str, Any]:
    """Run all of them and write the file; what it said of others is kept."""
    found: dict[str, Record] = json.loads(out.read_text())["programs"] if out.exists() else {}
    for start in range(0, len(programs), _CHUNK):
        for name, record in _chunk(compiler, variant, [each.name for each in programs[start : start + _CHUNK]]):
            found[name] = record
        whole = {
            "compiler": compiler,
            "variant": variant,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "programs": found,
        }
        out.write_text(json.dumps(whole))
        print(f"{compiler}: {min(start + _CHUNK, len(programs))} of {len(programs)}", file=sys.stderr, flush=True)
    return whole


def _chunk(compiler: str, variant: str, names: list[str]) -> Iterator[tuple[str, Record]]:
    while names:
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder) / "lines"
            lines.touch()
            code = _wait(_started(compiler, variant, names, lines), lines)
            begun = ""
            for line in lines.read_text().splitlines():
                record = json.loads(line)
                begun = record.get("begins", begun)
                if "name" in record:
                    begun = ""
                    names.remove(record["name"])
                    yield record.pop("name"), record
        if names:
            crashed = begun or names[0]
            names.remove(crashed)
            yield crashed, {"status": "crashed", "why": f"the process ended with {code}"}


def _started(compiler: str, variant: str, names: Sequence[str], lines: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "FLAMBEAU_SUPPRESS_ERRORS": "0"}
    command = [sys.executable, "-m", "tests.programs.worker", compiler, variant, json.dumps(list(names)), str(lines)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _wait(process: subprocess.Popen[bytes], lines: Path) -> int | str:
    size, heard = 0, time.monotonic()
    while True:
        try:
            return process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            if lines.stat().st_size != size:
                size, heard = lines.stat().st_size, time.monotonic()
            if time.monotonic() - heard > _SILENCE:
                process.kill()
                process.wait()
                return "a kill, as it heard no alarm"
