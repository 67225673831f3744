"""How long programs take that compute the same, each beginning with cold caches.

In: artifacts. Out: seconds of a call of each, None for one that fails. ``time_artifacts`` runs them in this process; ``time_apart`` in a process of its
own, so that a kernel which reads where it must not takes nothing down but that process: the programs that are left are timed in a new one.
"""

from __future__ import annotations

import atexit
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .artifact import Artifact, InputSpec
from .cache import Store, default_store
from .executor import load
from .triton_kernels import kernel_requests, submit_stored
from .workers import Pool, Request, WorkerFailed

#: Calls of each program, in turn; the median counts.
ROUNDS = 11
#: Bytes that are written between two calls: more than any cache of a GPU holds.
_FLUSHED = 256 << 20


def time_apart(
    artifacts: Sequence[Artifact], *, device: torch.device, store: Store | None = None
) -> list[float | None]:
    """Seconds of a call of each artifact, in another process, on ``device``. Their kernels are compiled here, all at once."""
    store = default_store() if store is None else store
    if device.type == "cuda":
        arch = 10 * torch.cuda.get_device_capability(device)[0] + torch.cuda.get_device_capability(device)[1]
        for cubin in submit_stored([r for artifact in artifacts for r in kernel_requests(artifact, arch)], store):
            cubin.exception()
    answer = _ask(artifacts, device)
    if not isinstance(answer, WorkerFailed):
        return answer
    # The process died: each by itself in one of its own tells whose fault it is.
    alone = [_ask([artifact], device) for artifact in artifacts]
    return [None if isinstance(found, WorkerFailed) else found[0] for found in alone]


def _ask(artifacts: Sequence[Artifact], device: torch.device) -> list[float | None] | WorkerFailed:
    request = Request("time", {"device": str(device)}, tuple(artifact.to_bytes() for artifact in artifacts))
    (answer,) = _process().run([request])
    return answer if isinstance(answer, WorkerFailed) else list(answer[0]["seconds"])


@functools.cache
def _process() -> Pool:
    """The process that times: started at the first request."""
    pool = Pool(1)
    atexit.register(pool.close)
    return pool


def time_artifacts(artifacts: Sequence[Artifact], device: torch.device, rounds: int = ROUNDS) -> list[float | None]:
    """Seconds of a call of each artifact on ``device``, in this process; all take inputs of the same values."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    calls: list[Callable[[], Any] | None] = [_prepared(artifact) for artifact in artifacts]
    clock = _GpuClock(device) if device.type == "cuda" else _Clock()
    taken: list[list[float]] = [[] for _ in artifacts]
    for _ in range(rounds):
        for number, call in enumerate(calls):
            if call is not None:
                taken[number].append(clock(call))
    return [statistics.median(times) if times else None for times in taken]


def _prepared(artifact: Artifact) -> Callable[[], Any] | None:
    """A call that has run once; None where it raises."""
    try:
        program = load(artifact)
        inputs = [_example(spec) for spec in artifact.program.inputs]
        program(*inputs)
        program(*inputs)
    except Exception:
        # Whatever is wrong with a candidate, it is not chosen.
        return None
    return functools.partial(program, *inputs)


def _example(spec: InputSpec) -> torch.Tensor:
    """A tensor of the layout that an input has: small random numbers, zeros for whole numbers, which may be positions."""
    if spec.dtype is None or spec.sizes is None or spec.strides is None:
        raise ValueError("programs are timed with tensors of known sizes")
    # The index of a device names a slot of the program; the process has one device, the current one.
    device = torch.device(spec.device.type) if spec.device is not None else None
    sizes, strides = [int(n) for n in spec.sizes], [int(n) for n in spec.strides]  # type: ignore[arg-type]
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
    flat = torch.zeros(extent, dtype=spec.dtype, device=device)
    if spec.dtype.is_floating_point:
        flat.copy_(torch.randn(extent, device=device) * 0.1)
    return flat.as_strided(sizes, strides)


class _Clock:
    """Seconds of one call on the CPU."""

    def __call__(self, call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start


class _GpuClock:
    """Seconds of one call on a GPU, after all that its caches held is gone."""

    def __init__(self, device: torch.device) -> None:
        self._room = torch.empty(_FLUSHED, dtype=torch.int8, device=device)

    def __call__(self, call: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._room.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
