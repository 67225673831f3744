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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import Factory, frozen

from flambeau_runtime.workers.protocol import STOP, read_frame, write_frame

#: Kernels that a running worker compiles while another one starts.
_ANSWERS_PER_START = 5
_MAIN = Path(__file__).with_name("main.py")


#: A header and byte strings.
Answer = tuple[dict[str, Any], list[bytes]]


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

    def __init__(self, environment: Mapping[str, str], preload: str) -> None:
        settings = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        # -P: the folder of main.py must not become importable, its file names are common words.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_MAIN), *([preload] if preload else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=settings,
        )

    def ask(self, request: Request) -> Answer:
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

    def close_pipes(self) -> None:
        """Let the process end by itself: it is told to, since children of a fork may hold the pipes open."""
        try:
            assert self.process.stdin is not None
            write_frame(self.process.stdin, {"method": STOP})  # type: ignore[arg-type]
        except (OSError, ValueError):
            pass
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass

    def close(self) -> None:
        """Wait for the process to end."""
        self.close_pipes()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Pool:
    """At most ``limit`` workers (default: the CPUs this process may use), each started on demand.

    ``environment`` is added to the workers' environment; ``preload`` is what a worker loads before its first request.
    """

    def __init__(
        self, limit: int | None = None, environment: Mapping[str, str] | None = None, *, preload: str = ""
    ) -> None:
        self.limit = limit if limit is not None else max(1, len(os.sched_getaffinity(0)))
        self._environment = dict(environment or {})
        self._preload = preload
        self._idle: list[_Worker] = []
        self._all: list[_Worker] = []
        self._lock = threading.Lock()

    def run(self, requests: Sequence[Request]) -> list[Answer | WorkerFailed]:
        """Answer every request; one that failed has its ``WorkerFailed`` in its place."""
        return [answer.result() for answer in self.submit(requests)]

    def submit(self, requests: Sequence[Request]) -> list[Future[Answer | WorkerFailed]]:
        """Have every request answered while the caller goes on."""
        if not requests:
            return []
        threads = min(self.limit, len(requests))
        with self._lock:
            running = len(self._all)
        if running:
            # By the time a new worker is ready, one that runs has answered several requests.
            threads = min(threads, max(running, len(requests) // _ANSWERS_PER_START))
        executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="flambeau-worker")
        answers = [executor.submit(self._one, request) for request in requests]
        executor.shutdown(wait=False)
        return answers

    def start(self, count: int) -> None:
        """Have at least ``count`` workers, as far as the limit allows; they get ready while the caller goes on."""
        with self._lock:
            missing = min(count, self.limit) - len(self._all)
        for _ in range(missing):
            self._give(self._new())

    def _one(self, request: Request) -> Answer | WorkerFailed:
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
        return self._new()

    def _new(self) -> _Worker:
        worker = _Worker(self._environment, self._preload)
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
            worker.close_pipes()
        for worker in workers:
            worker.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
