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
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.processes import read_records

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


def _chunk(compiler: str, variant: str, names: Sequence[str]) -> Iterator[tuple[str, Record]]:
    return read_records(names, partial(_started, compiler, variant), _SILENCE)


def _started(compiler: str, variant: str, names: Sequence[str], lines: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "FLAMBEAU_SUPPRESS_ERRORS": "0"}
    command = [sys.executable, "-m", "tests.programs.worker", compiler, variant, json.dumps(list(names)), str(lines)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
