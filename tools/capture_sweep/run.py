"""Run architectures under one compiler in processes of their own, and gather the records.

In: a compiler, its backend, and names. Out: a file of JSON: the compiler, the versions, and the record of each architecture in each mode
(`observe.py`). What the file says already of others is kept.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from tests.processes import Record, read_records

from .worker import SECONDS

_CHUNK = 12
#: A process that says nothing for so long does not hear its alarm.
_SILENCE = 2 * SECONDS


def run(compiler: str, backend: str, names: Sequence[str], out: Path) -> dict[str, Any]:
    """Run `names`, each an architecture and a mode, and write the file after every few of them."""
    found: dict[str, Record] = json.loads(out.read_text())["architectures"] if out.exists() else {}
    whole = {"compiler": compiler, "backend": backend, **_versions(), "architectures": found}
    for start in range(0, len(names), _CHUNK):
        some = names[start : start + _CHUNK]
        found.update(read_records(some, partial(_started, compiler, backend), _SILENCE))
        out.write_text(json.dumps(whole))
        print(f"{compiler}: {start + len(some)} of {len(names)}", file=sys.stderr, flush=True)
    return whole


def _versions() -> dict[str, str]:
    found = {"torch": torch.__version__, "python": platform.python_version()}
    for library in ("transformers", "timm"):
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "not installed"
    return found


def _started(compiler: str, backend: str, names: Sequence[str], lines: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "FLAMBEAU_SUPPRESS_ERRORS": "0"}
    command = [
        sys.executable,
        "-m",
        "tools.capture_sweep.worker",
        compiler,
        backend,
        json.dumps(list(names)),
        str(lines),
    ]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
