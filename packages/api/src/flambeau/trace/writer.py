"""Writes the trace of this process: one line of JSON a record, appended and whole.

In: records. Out: `flambeau-<host>-<process>[-rank<n>].jsonl` in a folder. A line is one `write` to a file opened for appending, so that what a process wrote
before it crashed can be read. A forked child writes a file of its own. Where the disk refuses, one warning says so, and nothing more is written.
"""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from attrs import define, field

from ..log import logger
from .schema import VERSION


def process_name(prefix: str) -> str:
    """`<prefix>-<pid>`, with the rank where the process has one."""
    rank = _rank()
    return f"{prefix}-{os.getpid()}{'' if rank is None else f'-rank{rank}'}"


def _rank() -> int | None:
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdigit() else None


@define
class Writer:
    """One process's file in `folder`, made at the first record."""

    folder: Path
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _file: int = field(default=-1, init=False)
    _process: int = field(default=-1, init=False)
    _zero: float = field(default=0.0, init=False)
    _files: set[tuple[int, str]] = field(factory=set, init=False)
    _is_refused: bool = field(default=False, init=False)

    def write(self, kind: str, compile_id: str = "", **fields: Any) -> None:
        """Append a record. What JSON has no form for is written as its text."""
        try:
            with self._lock:
                if self._is_refused:
                    return
                if self._process != os.getpid():
                    self._begin()
                self._append(kind, compile_id, fields)
        except OSError as error:
            self._is_refused = True
            logger.warning("trace_not_written", folder=str(self.folder), reason=str(error))

    def source(self, path: str) -> None:
        """Append the text of a source file, the first time that it is named."""
        at = os.getpid(), path
        if at in self._files or not path:
            return
        self._files.add(at)
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError):
            return
        self.write("file", path=path, text=text)

    def _begin(self) -> None:
        # Not at the top: the package is being imported when this module is.
        from .. import __version__

        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"{process_name(f'flambeau-{socket.gethostname()}')}.jsonl"
        self._file = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._process, self._zero = os.getpid(), time.perf_counter()
        facts = {
            "version": VERSION,
            "flambeau": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "rank": _rank(),
            "command": list(sys.argv),
            "started": time.time(),
        }
        self._append("process", "", facts)

    def _append(self, kind: str, compile_id: str, fields: Mapping[str, Any]) -> None:
        record = {
            "kind": kind,
            "time": round(time.perf_counter() - self._zero, 7),
            "thread": threading.get_native_id(),
            "compile": compile_id,
            **fields,
        }
        line = json.dumps(record, separators=(",", ":"), default=str).encode("utf-8", "backslashreplace") + b"\n"
        while line:
            line = line[os.write(self._file, line) :]
