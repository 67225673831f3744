"""Recording on a CUDA device: torch's ``CUDAGraph`` and its private pools.

In: a function that queues work. Out: a ``Recorded``. Each recording has a pool of its own: nothing else can take the
memory of its results while it lives, whatever order recordings are made and replayed in.

Recordings are made on a stream of their own, one a device and thread; nothing else is queued there.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from .recorder import Recorded, Run

_STREAMS = threading.local()
"""The recording stream of each device, for this thread."""


class CudaRecorder:
    """Records on the current device."""

    device = "cuda"

    def unavailable(self) -> str:
        """Why nothing may be recorded or replayed: a capture is going on already."""
        return "the caller records a CUDA graph of its own" if torch.cuda.is_current_stream_capturing() else ""

    def is_current(self, device: torch.device) -> bool:
        """Whether ``device`` is the current one."""
        return device.index == torch.cuda.current_device()

    def budget_bytes(self) -> int:
        """A quarter of the device's memory."""
        return torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory // 4

    def warm(self, run: Run) -> tuple[Any, ...]:
        """Run plainly: kernels are loaded, libraries make their handles and choose their algorithms."""
        return run()

    def record(self, run: Run) -> Recorded:
        """Record ``run`` in a new pool. An error ends the capture, leaves torch's generator usable, and is raised."""
        before = torch.cuda.memory_reserved()
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        current, side = torch.cuda.current_stream(), _recording_stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side), _without_collections(), _own_workspaces():
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                outputs = run()
                _end(graph)
            except BaseException:
                _abandon(graph, pool)
                raise
        current.wait_stream(side)
        # The base class's method: one call less on every replay.
        native: Any = super(torch.cuda.CUDAGraph, graph)
        return Recorded(outputs, native.replay, graph.reset, max(0, torch.cuda.memory_reserved() - before))

    def stream(self) -> int:
        """The handle of the current stream."""
        return torch.cuda.current_stream().cuda_stream

    def follow(self, stream: int) -> None:
        """Let the current stream wait for what was queued on ``stream``."""
        current = torch.cuda.current_stream()
        # The default stream's handle is 0, which ExternalStream takes for none at all.
        last = torch.cuda.ExternalStream(stream, device=current.device) if stream else torch.cuda.default_stream()
        current.wait_stream(last)


def _recording_stream() -> torch.cuda.Stream:
    streams: dict[int, torch.cuda.Stream] | None = getattr(_STREAMS, "streams", None)
    if streams is None:
        streams = _STREAMS.streams = {}
    device = torch.cuda.current_device()
    if device not in streams:
        streams[device] = torch.cuda.Stream()
    return streams[device]


def _end(graph: torch.cuda.CUDAGraph) -> None:
    with warnings.catch_warnings():
        # A program of nothing but empty tensors records nothing, which is fine here.
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        graph.capture_end()


@contextmanager
def _own_workspaces() -> Iterator[None]:
    """cuBLAS takes a workspace for the recording from the recording's pool, and forgets it afterwards.

    One from outside could be given to somebody else while replays still write to it.
    """
    torch.cuda.current_blas_handle()  # a thread's first one cannot be made during a capture
    torch._C._cuda_clearCublasWorkspaces()
    try:
        yield
    finally:
        torch._C._cuda_clearCublasWorkspaces()


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection during a capture: what dies in one may call CUDA, which a capture forbids."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any) -> None:
    """End a capture that went wrong, and bring torch's allocator and generator out of their capturing states."""
    with suppress(RuntimeError):
        if torch.cuda.is_current_stream_capturing():
            _end(graph)
            graph.reset()
            return
    # A capture that an operator made invalid cannot end in good order: what its end would have done is done here.
    device = torch.cuda.current_device()
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    scratch = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        scratch.capture_begin(capture_error_mode="thread_local")
        _end(scratch)
    scratch.reset()
