"""A handful of worker processes for requests that come in batches.

In: requests (method, JSON-able header, byte strings). Out: their answers, in the order of the requests.
Nothing is started at import: a worker starts when a request finds none idle and the limit is not reached, and
all are joined by ``close`` (or at the end of the ``with`` block). A worker that dies fails its request only.

A worker is a process of its own, or (``nursery=True``) a fork of one process that has Triton's compiler ready: then only that
one pays for importing it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from attrs import Factory, frozen

from flambeau_runtime.workers.protocol import END, NEW, STOP, read_frame, write_frame

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


def _start(arguments: Sequence[str], environment: Mapping[str, str], **pipes: Any) -> subprocess.Popen[bytes]:
    settings = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    # -P: the folder of main.py must not become importable, its file names are common words.
    return subprocess.Popen([sys.executable, "-P", str(_MAIN), *arguments], env=settings, **pipes)


def _join(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Worker:
    """One process and the two streams to it."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO, process: subprocess.Popen[bytes] | None = None) -> None:
        self.process = process
        self._requests, self._answers = requests, answers
        self._lost = False

    def ask(self, request: Request) -> Answer:
        try:
            write_frame(self._requests, {"method": request.method, **request.fields}, request.blobs)
            frame = read_frame(self._answers)
        except (OSError, EOFError) as error:
            self._lost = True
            raise WorkerFailed(f"the worker process died: {error}") from error
        if frame is None:
            self._lost = True
            raise WorkerFailed("the worker process ended without an answer")
        header, blobs = frame
        if not header["ok"]:
            raise WorkerFailed(header["error"], header.get("trace", ""))
        return header["result"], blobs

    def alive(self) -> bool:
        return not self._lost and (self.process is None or self.process.poll() is None)

    def dismiss(self) -> None:
        """Let the process end by itself: it is told to, since children of a fork may hold the streams open."""
        with contextlib.suppress(OSError, ValueError):
            write_frame(self._requests, {"method": STOP})
        for stream in (self._requests, self._answers):
            with contextlib.suppress(OSError):
                stream.close()

    def close(self) -> None:
        """Wait for the process to end; a fork is waited for by the nursery."""
        self.dismiss()
        if self.process is not None:
            _join(self.process)


class _Nursery:
    """A process that has Triton's compiler ready and forks a worker for each socket it is sent."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self.process = _start(["nursery"], environment, stdin=theirs.fileno())

    def worker(self) -> _Worker:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            socket.send_fds(self._control, [NEW], [theirs.fileno()])
            return _Worker(ours.makefile("wb"), ours.makefile("rb"))

    def close(self) -> None:
        """Wait for it and its workers, which have been dismissed."""
        with contextlib.suppress(OSError):
            self._control.send(END)
        self._control.close()
        _join(self.process)


class Pool:
    """At most ``limit`` workers (default: the CPUs this process may use), each started on demand.

    ``environment`` is added to the workers' environment.
    """

    def __init__(
        self, limit: int | None = None, environment: Mapping[str, str] | None = None, *, nursery: bool = False
    ) -> None:
        self.limit = limit if limit is not None else max(1, len(os.sched_getaffinity(0)))
        self._environment = dict(environment or {})
        self._forks = nursery
        self._nursery: _Nursery | None = None
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
        executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="flambeau-worker")
        answers = [executor.submit(self._one, request) for request in requests]
        executor.shutdown(wait=False)
        return answers

    def warm_up(self) -> None:
        """Start the nursery, so that it is ready when requests come."""
        with self._lock:
            if self._forks and self._nursery is None:
                self._nursery = _Nursery(self._environment)

    def _one(self, request: Request) -> Answer | WorkerFailed:
        try:
            worker = self._take()
        except OSError as error:
            return WorkerFailed(f"no worker process could be started: {error}")
        try:
            return worker.ask(request)
        except WorkerFailed as error:
            return error
        finally:
            self._give(worker)

    def _take(self) -> _Worker:
        self.warm_up()
        with self._lock:
            if self._idle:
                return self._idle.pop()
            nursery = self._nursery
        if nursery is not None:
            worker = nursery.worker()
        else:
            process = _start([], self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdin is not None and process.stdout is not None
            worker = _Worker(process.stdin, process.stdout, process)  # type: ignore[arg-type]
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
        """Dismiss every worker and wait for every process."""
        with self._lock:
            workers, self._all, self._idle = self._all, [], []
            nursery, self._nursery = self._nursery, None
        for worker in workers:
            worker.dismiss()
        for worker in workers:
            worker.close()
        if nursery is not None:
            nursery.close()

    def kill(self) -> None:
        """End every worker that is a process of the pool's own; requests that they have fail."""
        with self._lock:
            processes = [worker.process for worker in self._all if worker.process is not None]
        for process in processes:
            process.kill()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
