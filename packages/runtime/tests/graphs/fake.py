"""A recorder for CPU tensors: recording keeps the function, replaying runs it again into the same memory."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_runtime.graphs.recorder import Recorded, Run, Values
from flambeau_runtime.graphs.table import make_lane


class FakeRecorder:
    """As on a GPU, recording does none of the work: inputs and the random stream are put back as they were.

    ``busy`` stands for a capture of the caller's; ``fail`` makes the next recording raise. ``lane`` is that of the
    recordings that would share scratch memory; ``shared`` says of each whether it would. ``decided`` counts what was
    chosen or repeated at a replay, None where recordings have no conditions.
    """

    device = "cpu"
    asks_itself = False

    def __init__(self, *, native: bool = True) -> None:
        self._native = native
        self.lane = make_lane(0, native=native)
        self.shared: list[bool] = []
        self.warmed = self.recorded = self.replayed = self.released = 0
        self.busy = ""
        self.fail: Exception | None = None
        self.queue = 0
        self.budget = 1 << 40
        self.followed: list[int] = []
        self.during: Callable[[], None] | None = None
        self.decided: int | None = None

    def unavailable(self) -> str:
        return self.busy

    def is_current(self, device: torch.device) -> bool:
        return True

    def budget_bytes(self) -> int:
        return self.budget

    def warm(self, run: Run) -> tuple[Any, ...]:
        self.warmed += 1
        return run()

    def places(self, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
        return tuple(torch.empty(size, dtype=torch.uint8) for size in sizes)

    def record(self, run: Run, places: Sequence[torch.Tensor] | None = None) -> Recorded:
        if self.fail is not None:
            raise self.fail
        given = inspect.getclosurevars(run).nonlocals["given"]
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        # Bytes, not values: fresh memory may hold NaNs, and an expanded input cannot be copied to.
        before, state = [tensor.untyped_storage().clone() for tensor in tensors], torch.get_rng_state()
        decided = self.decided
        for tensor in tensors:
            if not tensor.is_floating_point():  # an index in memory that was not written yet is out of range
                tensor.untyped_storage().fill_(0)
        try:
            outputs = run()
        finally:
            torch.set_rng_state(state)
            self.decided = decided
            for tensor, memory in zip(tensors, before):
                tensor.untyped_storage().copy_(memory)
        if places is not None:
            homes = {tensor.untyped_storage()._cdata for tensor in (*tensors, *places)}
            assert all(value.untyped_storage()._cdata in homes for value in outputs if isinstance(value, torch.Tensor))
        self.recorded += 1
        self.shared.append(places is not None)
        kept = [value for value in outputs if isinstance(value, torch.Tensor)]
        addresses = [value.untyped_storage().data_ptr() for value in kept]
        sizes = [value.untyped_storage().nbytes() for value in kept]

        def replay() -> None:
            self.replayed += 1
            given[:] = [unowned(value) for value in given]
            if self.during is not None:
                self.during()
            fresh = [value for value in run() if isinstance(value, torch.Tensor)]
            for address, size, value in zip(addresses, sizes, fresh):
                source = value.untyped_storage()
                if source.data_ptr() != address:
                    copy_bytes(address, source.data_ptr(), size)

        def release() -> None:
            self.released += 1

        if places is None:
            return Recorded(outputs, replay, release, make_lane(self.queue, native=self._native), 1024, 1024)
        own, grown = sum(place.nbytes for place in places), 0 if any(self.shared[:-1]) else 1024
        return Recorded(outputs, replay, release, self.lane, grown + own, own)

    def has_conditions(self) -> bool:
        return self.decided is not None

    def choose(self, condition: torch.Tensor, yes: Run, no: Run, operands: Values) -> Values:
        assert self.decided is not None
        self.decided += 1
        return (yes if condition else no)()

    def repeat(
        self, carried: Values, asks: Callable[[Values], torch.Tensor], step: Callable[[Values], Values]
    ) -> Values:
        assert self.decided is not None
        self.decided += 1
        carried = tuple(value.clone() for value in carried)
        while asks(carried):
            carried = step(carried)
        return carried

    def stream(self) -> int:
        return self.queue

    def follow(self, stream: int) -> None:
        self.followed.append(stream)


def unowned(value: Any) -> Any:
    """The same memory without a share in it: a recording knows addresses only."""
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return value
    count = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.stride()))
    memory = (ctypes.c_char * (count * value.element_size())).from_address(value.data_ptr())
    return torch.frombuffer(memory, dtype=value.dtype).as_strided(value.shape, value.stride())


def copy_bytes(target: int, source: int, size: int) -> None:
    """``memmove``: the fake holds addresses, not tensors, so that it does not count as a user of the memory."""
    ctypes.memmove(target, source, size)
