"""The shared compilers: started once, kept for the next batch, joined when idle."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from flambeau_runtime.workers import Request, WorkerFailed
from flambeau_runtime.workers.compilers import Compilers, shared

pytest.importorskip("triton")

KERNEL = """
import triton
import triton.language as tl

@triton.jit
def fill(out):
    tl.store(out, 2.0)
"""
ARGUMENTS = {
    "entry": "fill", "signature": {"out": "*fp32"}, "constexprs": {}, "divisible": [], "num_warps": 1, "num_stages": 1, "arch": 90,
}  # fmt: skip


def compile_requests(count: int) -> list[Request]:
    return [Request("compile", {"arguments": ARGUMENTS}, (KERNEL.encode(),))] * count


def test_a_batch_uses_the_workers_of_the_one_before() -> None:
    """They are forks of one process, which ends with ``close`` when they have ended."""
    compilers = Compilers()
    assert not compilers.ready()
    compilers.warm_up()
    assert compilers.ready() and compilers._pool is not None
    pool = compilers._pool
    pool.limit = 2
    for count in (1, 3):
        for answer in compilers.run(compile_requests(count)):
            assert not isinstance(answer, WorkerFailed)
            facts, blobs = answer
            assert facts["name"] == "fill" and blobs[0].startswith(b"\x7fELF")
    assert 1 <= len(pool._all) <= 2 and pool._nursery is not None
    nursery = pool._nursery.process
    compilers.close()
    assert nursery.returncode == 0 and not compilers.ready()
    assert isinstance(compilers.run([Request("no such")])[0], WorkerFailed)
    compilers.close()


def test_a_worker_that_dies_fails_its_request_only() -> None:
    """The nursery forks another one."""
    compilers = Compilers()
    (first,) = compilers.run(compile_requests(1))
    assert not isinstance(first, WorkerFailed) and compilers._pool is not None
    assert compilers._pool._nursery is not None
    nursery = compilers._pool._nursery.process.pid
    (worker,) = Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()
    os.kill(int(worker), signal.SIGKILL)
    (lost,) = compilers.run(compile_requests(1))
    assert isinstance(lost, WorkerFailed)
    (answer,) = compilers.run(compile_requests(1))
    assert not isinstance(answer, WorkerFailed)
    compilers.close()


def test_idle_workers_are_joined() -> None:
    """Nothing is left when no batch came for a while."""
    compilers = Compilers(linger=0.05)
    compilers.warm_up()
    assert compilers._pool is not None and compilers._pool._nursery is not None
    nursery = compilers._pool._nursery.process
    deadline = time.monotonic() + 30
    while compilers.ready() and time.monotonic() < deadline:
        time.sleep(0.02)
    nursery.wait(30)
    assert not compilers.ready()


def test_a_process_has_one() -> None:
    assert shared() is shared()
