"""The Python twin of the native table of recordings: which recording fits a call, and how it is played.

In: recordings, and a call's inputs. Out: the outputs, from a replay, or from ``miss`` where no recording is ready.

A recording is *ready* when sizes, strides, dtypes and numbers are those it was made with, every input that it reads in
place is where it was, nobody refers to the memory it would hand out, and no replay of its *lane* is being queued. The
storages are counted, and a count above the one at rest means that a tensor, a view of it, or something autograd saved,
still looks at the last results. A lane has the recordings that use the same scratch memory: a replay waits for the last
one of its lane, whatever streams the two run on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from attrs import define

from ..scalars import number_key
from . import copying
from .recorder import Recorder
from .records import Recording, Result

Miss = Callable[..., tuple[Any, ...]]


def fits(recording: Recording, inputs: tuple[Any, ...]) -> bool:
    """Whether numbers, sizes, strides, dtypes and devices are those of the recording."""
    for position, value in recording.scalars:
        if number_key(inputs[position]) != number_key(value):
            return False
    for fact in recording.tensors:
        tensor = inputs[fact.position]
        if not isinstance(tensor, torch.Tensor) or not is_plain(tensor):
            return False
        if tensor.dtype != fact.dtype or tensor.device != fact.device:
            return False
        if tuple(tensor.shape) != fact.sizes or tensor.stride() != fact.strides:
            return False
    return True


def moved(recording: Recording, inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """Positions of the inputs that are not where the recording reads them."""
    return tuple(position for position, address in recording.fixed if inputs[position].data_ptr() != address)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is nothing but strided memory: no subclass that dispatches, no lazy conjugate or negative."""
    keys = torch._C._dispatch_keys(tensor)
    special = torch._C.DispatchKey.Python
    return tensor.layout == torch.strided and not (
        keys.has(special) or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()
    )


Counts = tuple[int, int, int]
"""Of a storage: the references in C++ (tensors over it), in Python (to the storage object itself), and its address."""


def counts_of(storages: tuple[torch.UntypedStorage, ...]) -> tuple[Counts, ...]:
    """What changes when somebody takes an interest in a storage, or takes its memory away."""
    return tuple(
        (int(torch._C._storage_Use_Count(storage._cdata)), sys.getrefcount(storage), storage.data_ptr())
        for storage in storages
    )


@define(eq=False)
class PyLane:
    """The twin of ``_C.Lane``: the queue of its recordings' last replay, and whether a replay is being queued."""

    stream: int
    running: bool = False


@define(eq=False)
class _Entry:
    """A recording with the storages of its results, their counts at rest, and the queue of its own last replay."""

    recording: Recording
    storages: tuple[torch.UntypedStorage, ...]
    resting: tuple[Counts, ...] = ()
    stream: int = 0

    def held(self) -> tuple[int, ...]:
        """The numbers of the storages that somebody still refers to since the last replay."""
        now = counts_of(self.storages)
        return tuple(n for n, counts in enumerate(now) if self.recording.lends(n) and counts != self.resting[n])

    def queue_after(self, recorder: Recorder) -> None:
        """Let the current queue wait for the lane's last replay, and for readers of this recording's last results.

        They may have been queued where those were made after the lane's next replay, which then did not wait for them.
        """
        lane, stream = self.recording.lane, recorder.stream()
        if lane.stream != stream:
            recorder.follow(lane.stream)
        if self.stream not in (stream, lane.stream):
            recorder.follow(self.stream)
        lane.stream = self.stream = stream


class PyTable:
    """Callable with a program's positional inputs."""

    def __init__(self, recorder: Recorder, miss: Miss, count: int) -> None:
        self._count = count
        self._recorder = recorder
        self._miss = miss
        self._entries: list[_Entry] = []
        self.running = False

    def add(self, recording: Recording) -> None:
        """Take a recording; its results must not be referenced by anything but the recording."""
        entry = _Entry(recording, recording.storages, stream=self._recorder.stream())
        entry.resting = counts_of(entry.storages)
        self._entries.append(entry)

    def held(self, recording: Recording) -> tuple[int, ...]:
        """The numbers of the recording's storages that somebody still refers to."""
        return self._entry(recording).held()

    def remove(self, recording: Recording) -> None:
        """Forget a recording."""
        self._entries = [entry for entry in self._entries if entry.recording is not recording]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """Replay what is ready, or leave the call to ``miss``."""
        if len(inputs) == self._count and not self.running and not self._recorder.unavailable():
            for entry in self._entries:
                recording = entry.recording
                if recording.lane.running or not fits(recording, inputs) or moved(recording, inputs):
                    continue
                if not entry.held():
                    return self._play(entry, inputs)
        return self._miss(*inputs)

    def play(self, recording: Recording, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Replay one recording that is known to fit and to be free; None where its lane is running."""
        if self.running or recording.lane.running:
            return None
        return self._play(self._entry(recording), inputs)

    def _entry(self, recording: Recording) -> _Entry:
        return next(entry for entry in self._entries if entry.recording is recording)

    def _play(self, entry: _Entry, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        recording = entry.recording
        self.running = recording.lane.running = True
        try:
            with ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                stack.enter_context(torch._C._AutoDispatchBelowADInplaceOrView())
                entry.queue_after(self._recorder)
                for item in recording.copied:
                    copying.fill(item.placeholder, inputs[item.position])
                recording.replay()
                for item in recording.copied:
                    if item.back:
                        copying.write_back(inputs[item.position], item.placeholder)
                given = {
                    storage._cdata: storage if recording.lends(number) else copying.copy_of(storage)
                    for number, storage in enumerate(entry.storages)
                }
                results = tuple(_result(result, given, inputs) for result in recording.results)
        finally:
            self.running = recording.lane.running = False
        for position in recording.mutated:
            if not inputs[position].is_inference():
                torch.autograd.graph.increment_version(inputs[position])
        return results


def _result(result: Result, storages: dict[int, torch.UntypedStorage], inputs: tuple[Any, ...]) -> Any:
    if result.kind == "own":
        return copying.over(storages[result.sample.untyped_storage()._cdata], result.sample)
    if result.kind == "alias":
        return copying.window(inputs[result.position], result.sample, result.shift)
    return inputs[result.position] if result.kind == "input" else result.sample
