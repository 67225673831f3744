"""A handful of worker processes for the time of one batch of requests.

In: requests (method, JSON-able header, byte strings). Out: their answers, in the order of the requests.
Nothing is started at import: a worker starts when a request finds none idle and the limit is not reached, and
all are joined by ``close`` (or at the end of the ``with`` block). A worker that dies fails its request only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from flambeau_runtime.workers.protocol import read_frame, write_frame

_MAIN = Path(__file__).with_name("main.py")


class WorkerFailed(RuntimeError):
    """A worker answered with an error, or died; the message holds its words, ``trace`` its traceback."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


@frozen
class Request:
    """One piece of work: ``method`` of the worker, its header fields, and byte strings."""

    method: str
    fields: Mapping[str, Any] = Factory(dict)
    blobs: tuple[bytes, ...] = ()


class _Worker:
    """One process and its two pipes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        settings = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        # -P: the folder of main.py must not become importable, its file names are common words.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_MAIN)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=settings
        )

    def ask(self, request: Request) -> tuple[dict[str, Any], list[bytes]]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            write_frame(self.process.stdin, {"method": request.method, **request.fields}, request.blobs)  # type: ignore[arg-type]
            frame = read_frame(self.process.stdout)  # type: ignore[arg-type]
        except (OSError, EOFError) as error:
            raise WorkerFailed(f"the worker process died: {error}") from error
        if frame is None:
            raise WorkerFailed(f"the worker process ended with status {self.process.wait()}")
        header, blobs = frame
        if not header["ok"]:
            raise WorkerFailed(header["error"], header.get("trace", ""))
        return header["result"], blobs

    def alive(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """At most ``limit`` workers (default: the CPUs this process may use), each started on demand.

    ``environment`` is added to the workers' environment.
    """

    def __init__(self, limit: int | None = None, environment: Mapping[str, str] | None = None) -> None:
        self.limit = limit if limit is not None else max(1, len(os.sched_getaffinity(0)))
        self._environment = dict(environment or {})
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, requests: Sequence[Request]) -> list[tuple[dict[str, Any], list[bytes]] | WorkerFailed]:
        """Answer every request; one that failed has its ``WorkerFailed`` in its place."""
        if not requests:
            return []
        threads = min(self.limit, len(requests))
        with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="flambeau-worker") as executor:
            return list(executor.map(self._one, requests))

    def _one(self, request: Request) -> tuple[dict[str, Any], list[bytes]] | WorkerFailed:
        worker = self._take()
        try:
            return worker.ask(request)
        except WorkerFailed as error:
            return error
        finally:
            self._give(worker)

    def _take(self) -> _Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        worker = _Worker(self._environment)
        with self._lock:
            self._all.append(worker)
        return worker

    def _give(self, worker: _Worker) -> None:
        with self._lock:
            if worker.alive():
                self._idle.append(worker)
                return
            self._all.remove(worker)
        worker.close()

    def close(self) -> None:
        """Close every pipe and wait for every process."""
        with self._lock:
            workers, self._all, self._idle = self._all, [], []
        for worker in workers:
            worker.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
