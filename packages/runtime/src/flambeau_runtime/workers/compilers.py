"""The worker processes that compile Triton kernels for this process: started by its first batch, or ahead of it by ``warm_up``.

They are kept for the next batch, and joined when none has come for ``LINGER_SECONDS``, and at exit. A child of a fork starts
its own.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from flambeau_runtime.cache.trust import scratch_folder
from flambeau_runtime.workers import triton_task
from flambeau_runtime.workers.pool import Answer, Pool, Request, WorkerFailed

LINGER_SECONDS = 30.0


class Compilers:
    """A ``Pool`` that exists while it is in use."""

    def __init__(self, linger: float = LINGER_SECONDS) -> None:
        self._linger = linger
        self._lock = threading.Lock()
        self._pool: Pool | None = None
        self._folder = ""
        self._users = 0
        self._timer: threading.Timer | None = None

    def run(self, requests: Sequence[Request]) -> list[Answer | WorkerFailed]:
        """``Pool.run`` with the shared workers."""
        return [answer.result() for answer in self.submit(requests)]

    def submit(self, requests: Sequence[Request]) -> list[Future[Answer | WorkerFailed]]:
        """``Pool.submit`` with the shared workers, which stay until all is answered."""
        pool = self._enter(len(requests))
        answers = pool.submit(requests)
        for answer in answers:
            answer.add_done_callback(lambda _: self._leave())
        return answers

    def warm_up(self) -> None:
        """Start the process that imports Triton and forks the workers. Returns at once."""
        pool = self._enter()
        try:
            pool.warm_up()
        finally:
            self._leave()

    def ready(self) -> bool:
        """Whether workers are running."""
        with self._lock:
            return self._pool is not None

    def close(self) -> None:
        """Join the workers; the next batch starts new ones."""
        with self._lock:
            self._stop_timer()
            pool, folder, self._pool = self._pool, self._folder, None
        if pool is not None:
            pool.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _enter(self, users: int = 1) -> Pool:
        with self._lock:
            self._stop_timer()
            self._users += users
            if self._pool is None:
                # Triton's own on-disk cache is not wanted: the store of artifacts keeps the binaries.
                self._folder = tempfile.mkdtemp(prefix="flambeau-triton-", dir=scratch_folder())
                settings = {"TRITON_CACHE_DIR": self._folder, triton_task.INTERPRET_VARIABLE: "0"}
                self._pool = Pool(environment=settings, nursery=True)
            return self._pool

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._timer = threading.Timer(self._linger, self._close_idle)
                self._timer.daemon = True
                self._timer.start()

    def _close_idle(self) -> None:
        with self._lock:
            idle = self._users == 0
        if idle:
            self.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@functools.cache
def _of_process(process: int) -> Compilers:
    compilers = Compilers()
    atexit.register(compilers.close)
    return compilers


def shared() -> Compilers:
    """The compilers of this process."""
    return _of_process(os.getpid())
