"""The shared compilers: started once, kept for the next batch, joined when idle."""

from __future__ import annotations

import time

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


def processes(compilers: Compilers) -> list[int]:
    assert compilers._pool is not None
    return [worker.process.pid for worker in compilers._pool._all]


def test_a_batch_uses_the_workers_of_the_one_before() -> None:
    """One worker that was started ahead answers two batches, and ends with ``close``."""
    compilers = Compilers()
    assert not compilers.ready()
    compilers.warm_up(1)
    assert compilers.ready()
    (worker,) = processes(compilers)
    for _ in range(2):
        ((facts, blobs),) = compilers.run([Request("compile", {"arguments": ARGUMENTS}, (KERNEL.encode(),))])  # type: ignore[misc]
        assert facts["name"] == "fill" and blobs[0].startswith(b"\x7fELF")
        assert processes(compilers) == [worker]
    pool = compilers._pool
    assert pool is not None
    (process,) = [w.process for w in pool._all]
    compilers.close()
    assert process.returncode == 0 and not compilers.ready()
    assert isinstance(compilers.run([Request("no such")])[0], WorkerFailed)
    compilers.close()


def test_a_small_batch_waits_for_the_workers_that_run() -> None:
    """Three kernels are not worth starting a second worker."""
    compilers = Compilers()
    compilers.warm_up(1)
    answers = compilers.run([Request("compile", {"arguments": ARGUMENTS}, (KERNEL.encode(),))] * 3)
    assert all(not isinstance(answer, WorkerFailed) for answer in answers)
    assert len(processes(compilers)) == 1
    compilers.close()


def test_idle_workers_are_joined() -> None:
    """Nothing is left when no batch came for a while."""
    compilers = Compilers(linger=0.05)
    compilers.warm_up(1)
    assert compilers._pool is not None
    (worker,) = compilers._pool._all
    deadline = time.monotonic() + 30
    while compilers.ready() and time.monotonic() < deadline:
        time.sleep(0.02)
    worker.process.wait(30)
    assert not compilers.ready()


def test_a_process_has_one() -> None:
    assert shared() is shared()
