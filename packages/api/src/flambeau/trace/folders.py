"""A folder about each compile: the records of a trace as files that people read, and a script that runs the graph.

In: records, as `Writer` takes them, kept until the compile ends. Out: `<folder>/process-<pid>[-rank<n>]/<compile id>-<function>/` with the files of `texts.py`. A folder
comes into being whole, under another name first: one that is there is complete, whatever became of the compile. What a compile says later (a CUDA graph is
recorded in a later call) is appended to its log. Where the disk refuses, one warning says so, and the program goes on.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attrs import define, field

from ..log import logger
from .texts import files_of_records, log_line
from .writer import process_name

Record = dict[str, Any]


@define
class Folders:
    """The debug folders of this process below `folder`."""

    folder: Path
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _going_on: dict[str, list[Record]] = field(factory=dict, init=False)
    _done: dict[str, Path] = field(factory=dict, init=False)
    _zero: float = field(factory=time.perf_counter, init=False)
    _has_warned: bool = field(default=False, init=False)

    def write(self, kind: str, compile_id: str = "", **fields: Any) -> None:
        """Keep a record of a compile that goes on; the last one makes the folder."""
        record = {"kind": kind, "time": time.perf_counter() - self._zero, **fields}
        with self._lock:
            if kind == "frame_begin":
                self._going_on[compile_id] = []
            records = self._going_on.get(compile_id)
            if records is None:
                self._append(compile_id, record)
                return
            records.append(record)
            if kind == "frame_end":
                del self._going_on[compile_id]
                self._spared(lambda: self._make(compile_id, records))

    def source(self, path: str) -> None:
        """Sources stay where they are: the files name them, with the lines."""

    def add(self, compile_id: str, files: Mapping[str, bytes]) -> None:
        """Put files into the folder of a compile that has ended, each whole."""
        with self._lock:
            place = self._done.get(compile_id)
            if place is not None:
                self._spared(lambda: _write_all(place, files))

    def _make(self, compile_id: str, records: list[Record]) -> None:
        parent = self.folder / process_name("process")
        name = file_name(f"{compile_id.replace('/', '_')}-{records[0].get('function', '')}")
        place, number = parent / name, 1
        while place.exists():  # ids begin anew after a reset
            number += 1
            place = parent / f"{name}-{number}"
        begun = parent / f".{place.name}.part"
        try:
            for path, text in files_of_records(records).items():
                file = begun / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", errors="backslashreplace")
            begun.rename(place)
        except BaseException:
            shutil.rmtree(begun, ignore_errors=True)
            raise
        self._done[compile_id] = place

    def _append(self, compile_id: str, record: Record) -> None:
        place = self._done.get(compile_id)
        if place is not None and (line := log_line(record)):

            def append() -> None:
                with (place / "log.txt").open("a", encoding="utf-8", errors="backslashreplace") as file:
                    file.write(f"{line}\n")

            self._spared(append)

    def _spared(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                logger.warning("debug_folder_not_written", folder=str(self.folder), reason=str(error))


def file_name(text: str) -> str:
    """A function's name as one of a file: `f.<locals>.<lambda>` has letters that shells dislike."""
    return re.sub(r"[^\w.-]+", "_", text.replace("<locals>.", "")).strip("_")[:100]


def _write_all(place: Path, files: Mapping[str, bytes]) -> None:
    """Each file whole, or not at all."""
    for name, data in files.items():
        begun = place / f".{name}.part"
        try:
            begun.write_bytes(data)
            begun.replace(place / name)
        except BaseException:
            begun.unlink(missing_ok=True)
            raise
