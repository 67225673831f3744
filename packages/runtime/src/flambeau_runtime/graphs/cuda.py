"""Recording on a CUDA device: torch's ``CUDAGraph`` and its private pools.

In: a function that queues work. Out: a ``Recorded``. What a recording allocates lies in a private pool, and what it
frees is there for the pool's next recording, though its own replays go on writing to it. So no result may lie in a pool
that has several recordings:

- one that leaves its results in ``places`` shares a pool, and so a cuBLAS workspace, with all others of its thread and
  device that do. Nothing in the pool is wanted after a replay; the lane keeps replays from overlapping;
- one whose results stay where they are made has a pool and a lane of its own: nothing else can take that memory while
  it lives, whatever order recordings are made and replayed in.

Recordings are made on a stream of their own, one a device and thread; nothing else is queued there. Places are
allocated for that stream too: once freed, they become places of later recordings only, which begin when the whole
device is idle.
"""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from attrs import define, field

from ..accelerators import CUDA
from ..device import conditional
from . import settling
from .recorder import Recorded, Run, Values
from .table import make_lane

_THREAD = threading.local()
"""``devices``: what this thread's recordings have in common, by device."""


@define(eq=False)
class _Common:
    """What the recordings of one thread on one device have in common; ``graphs`` live in the shared pool."""

    stream: torch.cuda.Stream
    lane: Any
    graphs: weakref.WeakSet[torch.cuda.CUDAGraph] = field(factory=weakref.WeakSet)
    _pool: Any = None

    def pool(self) -> Any:
        """The shared pool; a new one when nothing lives in it: torch takes none again that all graphs have left."""
        if not self.graphs:
            self._pool = torch.cuda.graph_pool_handle()
        return self._pool

    def leave_pool(self) -> None:
        """Make the next recording in another pool. Those of this one stay."""
        self.graphs = weakref.WeakSet()


@define(eq=False)
class _Capture:
    """A recording that is being made to a private pool. ``depth`` is in how many conditional parts of it we are."""

    pool: Any
    depth: int = 0
    _by_thread: bool = False
    _streams: list[torch.cuda.Stream] = field(factory=list)

    @contextmanager
    def inner(self) -> Iterator[torch.cuda.Stream]:
        """A stream for a conditional part, the same for all parts of one depth."""
        if not self._by_thread:
            # The pool serves the recording's own stream. Parts are captured on others, by this thread.
            device = torch.cuda.current_device()
            torch._C._cuda_endAllocateToPool(device, self.pool)
            torch._C._cuda_beginAllocateCurrentThreadToPool(device, self.pool)
            self._by_thread = True
        if self.depth == len(self._streams):
            busy = [torch.cuda.current_stream(), _common().stream, *self._streams]
            self._streams.append(other_stream({stream.cuda_stream for stream in busy}))
        self.depth += 1
        try:
            yield self._streams[self.depth - 1]
        finally:
            self.depth -= 1

    def leave(self) -> None:
        """Let go of the pool, once the recording has: it counts everyone who began to allocate there."""
        if self._by_thread:
            torch._C._cuda_releasePool(torch.cuda.current_device(), self.pool)


def other_stream(taken: set[int]) -> torch.cuda.Stream:
    """A stream that is none of those, given by their handles: torch has 32 streams a device, and hands them out in turn."""
    while (stream := torch.cuda.Stream()).cuda_stream in taken:
        pass
    return stream


class CudaRecorder:
    """Records on the current device."""

    device = CUDA.type
    asks_itself = True

    def __init__(self) -> None:
        self._capture: _Capture | None = None

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

    def places(self, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
        """Ordinary memory of the recording stream. The kernel that will fill it is loaded: captures should not."""
        with torch.cuda.stream(_common().stream):
            made = tuple(torch.empty(size, dtype=torch.uint8, device=self.device) for size in sizes)
            settling.fill(made, made)
        return made

    def record(self, run: Run, places: Sequence[torch.Tensor] | None = None) -> Recorded:
        """Record ``run``. An error ends the capture, leaves torch and other recordings usable, and is raised."""
        before, common, shared = torch.cuda.memory_reserved(), _common(), places is not None
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        torch.cuda.synchronize()
        with _own_workspaces(), torch.cuda.stream(common.stream), _without_collections():
            pool = common.pool() if shared else torch.cuda.graph_pool_handle()
            self._capture = capture = _Capture(pool)
            try:
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                outputs = run()
                _end(graph)
            except BaseException:
                if not _abandon(graph, pool) and shared:
                    common.leave_pool()
                raise
            finally:
                self._capture = None
                capture.leave()
        current.wait_stream(common.stream)
        grown = max(0, torch.cuda.memory_reserved() - before)
        # The base class's method: one call less on every replay.
        native: Any = super(torch.cuda.CUDAGraph, graph)
        if places is None:
            return Recorded(outputs, native.replay, graph.reset, make_lane(self.stream()), grown, grown)
        common.graphs.add(graph)
        own = sum(place.nbytes for place in places)
        return Recorded(outputs, native.replay, partial(_release, graph, common.graphs), common.lane, grown + own, own)

    def has_conditions(self) -> bool:
        """Whether the driver's graphs have conditional nodes."""
        return conditional.is_available()

    def choose(self, condition: torch.Tensor, yes: Run, no: Run, operands: Values) -> Values:
        """A node for each branch. Results lie where the first branch leaves them; the second one's are copied there."""
        condition = _as_bool(condition)
        results: list[Any] = []
        with self._part(condition, True):
            for value in yes():
                # Two results of one branch may be one tensor, those of the other are none the less two.
                results.append(_unshared(value, (*operands, *results)))
        with self._part(condition, False):
            _copy(results, no())
        return tuple(results)

    def repeat(
        self, carried: Values, asks: Callable[[Values], torch.Tensor], step: Callable[[Values], Values]
    ) -> Values:
        """One node, which runs again as long as its end says so. What is carried lies in memory of the loop's own."""
        carried = tuple(value.clone() for value in carried)
        condition = _as_bool(asks(carried))
        with self._part(condition, True, again=True) as asked:
            _copy(carried, tuple(_unshared(value, carried) for value in step(carried)))
            asked.decide(_as_bool(asks(carried)))
        return carried

    @contextmanager
    def _part(self, condition: torch.Tensor, wanted: bool, *, again: bool = False) -> Iterator[conditional.Condition]:
        """What is queued within is a node of what is being recorded."""
        assert self._capture is not None
        with (
            self._capture.inner() as stream,
            conditional.decided(condition, wanted, stream, again=again) as asked,
        ):
            yield asked

    def stream(self) -> int:
        """The handle of the current stream."""
        return torch.cuda.current_stream().cuda_stream

    def follow(self, stream: int) -> None:
        """Let the current stream wait for what was queued on ``stream``."""
        current = torch.cuda.current_stream()
        # The default stream's handle is 0, which ExternalStream takes for none at all.
        last = torch.cuda.ExternalStream(stream, device=current.device) if stream else torch.cuda.default_stream()
        current.wait_stream(last)


def _common() -> _Common:
    devices: dict[int, _Common] | None = getattr(_THREAD, "devices", None)
    if devices is None:
        devices = _THREAD.devices = {}
    device = torch.cuda.current_device()
    if device not in devices:
        devices[device] = _Common(torch.cuda.Stream(), make_lane(torch.cuda.current_stream().cuda_stream))
    return devices[device]


def _as_bool(condition: torch.Tensor) -> torch.Tensor:
    return condition if condition.dtype is torch.bool else condition != 0


def _unshared(value: Any, others: Values) -> Any:
    """``value`` in memory that none of the others has."""
    storages = {other.untyped_storage()._cdata for other in others if isinstance(other, torch.Tensor)}
    return value.clone() if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in storages else value


def _copy(places: Sequence[Any], values: Values) -> None:
    for place, value in zip(places, values, strict=True):
        if isinstance(place, torch.Tensor):
            place.copy_(value)


def _release(graph: torch.cuda.CUDAGraph, living: weakref.WeakSet[torch.cuda.CUDAGraph]) -> None:
    """Give back one recording of a shared pool: torch frees the pool's memory when the last one is."""
    living.discard(graph)
    graph.reset()


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


def _abandon(graph: torch.cuda.CUDAGraph, pool: Any) -> bool:
    """End a capture that went wrong, and bring torch's allocator and generator out of their capturing states.

    Out: whether the pool is as if the capture had never begun.
    """
    with suppress(RuntimeError):
        if torch.cuda.is_current_stream_capturing():
            _end(graph)
            graph.reset()
            return True
    # A capture that an operator made invalid cannot end in good order: what its end would have done is done here. Only
    # torch's allocator of pinned memory goes on taking the pool for one that is being recorded to.
    device = torch.cuda.current_device()
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    scratch = torch.cuda.CUDAGraph()
    with torch.cuda.stream(torch.cuda.Stream()):
        scratch.capture_begin(capture_error_mode="thread_local")
        _end(scratch)
    scratch.reset()
    return False
