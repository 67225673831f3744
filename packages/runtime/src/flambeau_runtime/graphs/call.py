"""One program that can be recorded as a whole: when it is recorded, and what happens where it is not.

In: an executor of the program and a recorder. Out: a callable with the executor's convention. The table in front replays
what is ready; every other call comes to ``RecordedProgram.miss``, which runs plainly, records, or says why not:

- the first call of a size warms up: it runs plainly, where a recording would;
- the next one records. Results that are small are moved at its end, so that recordings can share scratch memory
  (``settling.py``, ``cuda.py``). Parameters, buffers, inputs that the program writes and results of other recordings
  are read in place; every other input is copied into a placeholder;
- an input read in place that moved makes a new recording, and after a few moves it is copied like the others;
- results that are still referenced take their recording out of use: a second one takes turns with it, and when that is
  taken too, a last one whose results are copied out (or, where those are large, the call runs plainly);
- past the limit of sizes, calls of further sizes run plainly.
"""

from __future__ import annotations

import gc
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from attrs import define, field

from .. import artifact as a
from ..log import logger
from ..scalars import number_key
from . import copying, memory, settling
from .recorder import Recorded, Recorder
from .records import CopiedInput, GraphDecision, GraphSettings, Recording, Report, Result, TensorFact
from .table import make_table
from .table_py import is_plain, moved

Executor = Callable[..., tuple[Any, ...]]
Signature = tuple[Any, ...]
Skipped = frozenset[int] | None

_REPLAYING = "another thread replays it, or what shares its scratch memory"


class CannotRecord(Exception):
    """This call's inputs cannot be recorded; the message says why."""


@define
class _Group:
    """The calls of one signature: sizes, strides, dtypes and numbers.

    ``own_bytes``: the sizes of its own results' storages in the warm-up; None where they are unknown or do not hold.
    """

    calls: int = 0
    own_bytes: tuple[int, ...] | None = None
    rewritten: int = 0
    recordings: list[Recording] = field(factory=list)
    told: set[str] = field(factory=set)


class RecordedProgram:
    """The state machine of one program. ``table`` is what callers call."""

    def __init__(
        self,
        name: str,
        specs: tuple[a.InputSpec, ...],
        executor: Executor,
        recorder: Recorder,
        report: Report,
        settings: GraphSettings,
        *,
        native: bool = True,
    ) -> None:
        self.name, self.specs, self.settings = name, specs, settings
        self.closed = ""
        self._executor, self._recorder, self._report = executor, recorder, report
        #: What runs while a recording is made.
        self.executor_of_recordings = executor
        self._groups: dict[Signature, _Group] = {}
        self._copied: set[int] = set()
        self._told: set[str] = set()
        self._in_vain = 0
        self._moves: Counter[int] = Counter()
        self._lock = threading.Lock()
        self.table = make_table(recorder, self.miss, len(specs), native=native)

    def miss(self, *inputs: Any) -> tuple[Any, ...]:
        """A call for which no recording is ready."""
        if self.closed or self._in_vain > self.settings.patience:
            return self._executor(*inputs)
        reason = _REPLAYING if self.table.running else self._recorder.unavailable()
        if reason or not self._lock.acquire(blocking=False):
            self._tell(self._told, "plain", reason or "another thread records it")
            return self._executor(*inputs)
        try:
            recording = self._prepare(inputs)
            self._in_vain = self._in_vain + 1 if recording is None else 0
            if recording is None:
                return self._executor(*inputs)
            if isinstance(recording, tuple):
                return recording
            results: tuple[Any, ...] | None = self.table.play(recording, inputs)
            if results is None:
                self._tell(self._told, "plain", _REPLAYING)
                return self._executor(*inputs)
            return results
        finally:
            self._lock.release()

    def recordings(self) -> list[Recording]:
        """Every recording that is kept."""
        return [recording for group in self._groups.values() for recording in group.recordings]

    def reserved_bytes(self) -> int:
        """Device memory that the recordings took."""
        return sum(recording.reserved_bytes for recording in self.recordings())

    def reset(self) -> None:
        """Forget every recording and give its memory back; later calls warm up and record again."""
        with self._lock:
            for recording in self.recordings():
                self.table.remove(recording)
            for group in self._groups.values():
                for recording in tuple(group.recordings):
                    self._drop(group, recording)
            self._groups.clear()
            self._moves.clear()
            self._copied.clear()
            self._in_vain = 0

    def _prepare(self, inputs: tuple[Any, ...]) -> Recording | tuple[Any, ...] | None:
        """A recording to play, the results of a warm-up, or None: run plainly."""
        reason = self._unusable(inputs)
        if reason:
            self._tell(self._told, "plain", reason)
            return None
        other = self._other_size(inputs)
        if other is not None:
            self._tell(self._told, "plain", f"size {other} is not among those that are recorded")
            return None
        key = self._signature(inputs)
        group = self._groups.get(key) or self._new_group(key)
        group.calls += 1
        if group.calls <= self.settings.warmups:
            results = self._recorder.warm(lambda: self._executor(*inputs))
            group.own_bytes = settling.own_bytes(results, inputs)
            return results
        try:
            if not group.recordings and self._sizes_recorded() >= self.settings.sizes_limit:
                self._over_limit()
                return None
            if not group.recordings:
                self._warn_of_sizes()
            return self._next_recording(group, inputs)
        except CannotRecord as error:
            self._tell(group.told, "plain", str(error))
        except Exception as error:
            self._close(error)
        return None

    def _new_group(self, key: Signature) -> _Group:
        """Sizes that came once are forgotten for new ones: only those that come again are recorded."""
        if len(self._groups) - self._sizes_recorded() > 4 * self.settings.sizes_limit:
            del self._groups[next(key for key, group in self._groups.items() if not group.recordings)]
        group = self._groups[key] = _Group()
        return group

    def _other_size(self, inputs: tuple[Any, ...]) -> int | None:
        """A size that changes from call to call and is none of those that are recorded."""
        wanted = self.settings.capture_sizes
        if wanted is None:
            return None
        for spec, value in zip(self.specs, inputs):
            if spec.kind == "scalar":
                changing = (value,) if type(value) is int else ()
            else:
                changing = tuple(size for known, size in zip(spec.sizes or (), value.shape) if type(known) is not int)
            for size in changing:
                if size not in wanted:
                    return int(size)
        return None

    def _warn_of_sizes(self) -> None:
        """One more size is about to be recorded."""
        most = self.settings.sizes_warned
        if most is not None and self._sizes_recorded() >= most and "sizes" not in self._told:
            self._told.add("sizes")
            warnings.warn(
                f"flambeau: {self.name} is recorded for more than {most} different sizes, each of which takes memory; pad the inputs to fewer sizes",
                RuntimeWarning,
                stacklevel=2,
            )

    def _sizes_recorded(self) -> int:
        return sum(bool(group.recordings) for group in self._groups.values())

    def _unusable(self, inputs: tuple[Any, ...]) -> str:
        """Why these inputs are left to the executor, or ""."""
        if len(inputs) != len(self.specs):
            return "wrong number of inputs"
        devices = set()
        for position, (spec, value) in enumerate(zip(self.specs, inputs)):
            if spec.kind == "scalar":
                if type(value) not in (int, float, bool):
                    return f"{self._label(position)} is no plain number"
            elif not isinstance(value, torch.Tensor) or not is_plain(value):
                return f"{self._label(position)} is not a plain strided tensor"
            else:
                devices.add(value.device)
        if not devices:
            return "there are no tensor inputs"
        if any(device.type != self._recorder.device for device in devices):
            return f"an input is not on {self._recorder.device}"
        if len(devices) > 1:
            return "the inputs are on several devices"
        return "" if self._recorder.is_current(devices.pop()) else "another device is the current one"

    def _signature(self, inputs: tuple[Any, ...]) -> Signature:
        return tuple(
            number_key(value)
            if spec.kind == "scalar"
            else (value.dtype, value.device, tuple(value.shape), value.stride())
            for spec, value in zip(self.specs, inputs)
        )

    def _next_recording(self, group: _Group, inputs: tuple[Any, ...]) -> Recording | None:
        """What to play for a signature that is warm: none of its recordings was ready."""
        count, reserved = len(self.recordings()), memory.reserved_bytes()
        if count >= self.settings.recordings_limit or reserved > self._recorder.budget_bytes():
            self._tell(self._told, "plain", f"{count} recordings exist, {reserved} bytes in all: no more are made")
            return None
        fitting = [recording for recording in group.recordings if not moved(recording, inputs)]
        if not fitting:
            if group.recordings and not self._after_move(group, inputs):
                return None
            first = "first call of these sizes after warm-up"
            return self._record(group, inputs, "an input that is read in place moved" if group.recordings else first)
        # What is free was not ready because its lane was running, which may be over.
        free = next((recording for recording in fitting if not self.table.held(recording)), None)
        return free or self._when_taken(group, fitting, inputs)

    def _when_taken(self, group: _Group, fitting: list[Recording], inputs: tuple[Any, ...]) -> Recording | None:
        """All that fit have results that are still referenced: take turns, copy out, or run plainly."""
        limits, last = self.settings, fitting[-1]
        held = frozenset(number for recording in fitting for number in self.table.held(recording))
        sizes = [storage.nbytes() for storage in last.storages]
        reason = "earlier results are still referenced"
        small = 8 * sum(sizes[number] for number in held) <= memory.turn_bytes(last) > limits.scratch_limit_bytes
        if small and last.copied_out is not None and group.rewritten < limits.rewrites_limit:
            group.rewritten += 1
            for recording in fitting:
                self._drop(group, recording)
            return self._record(group, inputs, f"{reason}: those are copied out", last.copied_out | held)
        if len(fitting) < limits.lenders:
            return self._record(group, inputs, f"{reason}: another takes turns", last.copied_out)
        if sum(sizes) > limits.copy_out_limit_bytes:
            self._tell(group.told, "plain", f"{reason} ({sum(sizes)} bytes)")
            return None
        return self._record(group, inputs, f"{reason}: all are copied out", None)

    def _after_move(self, group: _Group, inputs: tuple[Any, ...]) -> bool:
        """Count the moves of inputs read in place; False: this call is not worth a recording."""
        limits = self.settings
        for recording in tuple(group.recordings):
            if memory.gone(recording):
                self._drop(group, recording)
        if not group.recordings:
            return True
        places = min((moved(recording, inputs) for recording in group.recordings), key=len)
        owned = {p for p in places if self._owned(p)}
        passing = {p for p in places if p not in owned and not memory.is_lent(inputs[p], id(self))}
        self._moves.update(places)
        # A result of another recording has few places to be; only its wandering among many makes it a copied input.
        often = {p for p in places if self._moves[p] > limits.moves_limit * (1 if p in owned | passing else 4)}
        others = often - owned
        size = sum(inputs[p].nbytes for p in passing | others)
        if (passing and not often >= passing) or (others and size > limits.copy_in_limit_bytes):
            where = f"{self._label(min(passing or others))} is not the result of a recording this time"
            self._tell(group.told, "plain", where + (f" ({size} bytes)" if others else ""))
            return False
        stale = {p for p in often & owned if inputs[p].nbytes <= limits.moving_bytes}
        self._copied.update(stale | others)
        for other in self._groups.values() if stale else ():
            for recording in tuple(other.recordings):
                if any(position in stale for position, _ in recording.fixed):
                    self._drop(other, recording)
        return True

    def _owned(self, position: int) -> bool:
        """Whether the input is read in place for what it is, not for where it came from."""
        return self.specs[position].static or self.specs[position].mutated

    def _in_place(self, position: int, tensor: torch.Tensor) -> bool:
        return position not in self._copied and (self._owned(position) or memory.is_lent(tensor, id(self)))

    def _record(
        self, group: _Group, inputs: tuple[Any, ...], reason: str, copied_out: Skipped = frozenset()
    ) -> Recording:
        if self.settings.collects:
            gc.collect()
        tensors = [position for position, spec in enumerate(self.specs) if spec.kind == "tensor"]
        in_place = [position for position in tensors if self._in_place(position, inputs[position])]
        self._check_sharing(tensors, in_place, inputs)
        copied = []
        given = list(inputs)
        for position in tensors:
            if position in in_place:
                continue
            place = copying.placeholder_for(inputs[position])
            copied.append(CopiedInput(position, place, self.specs[position].mutated))
            given[position] = place
        recorded = self._capture(group, given)
        try:
            recording = self._finish(inputs, given, in_place, copied, recorded, copied_out)
        except BaseException:
            recorded.release()
            raise
        del recorded
        self.table.add(recording)
        group.recordings.append(recording)
        memory.keep(recording, id(self))
        self._tell(
            group.told,
            "recorded",
            f"{reason} ({len(copied)} inputs copied, {len(in_place)} read in place)",
            always=True,
        )
        return recording

    def _capture(self, group: _Group, given: list[Any]) -> Recorded:
        """Small results are moved, so that scratch memory can be shared; others stay where they are made."""
        run, sizes = self.executor_of_recordings, group.own_bytes
        if sizes is not None and sum(sizes) <= self.settings.settled_results_bytes:
            places = self._recorder.places(sizes)
            try:
                return self._recorder.record(lambda: settling.settle(run(*given), given, places), places)
            except settling.ResultsDiffer:
                logger.debug("results differ from the warm-up", artifact="cudagraphs", program=self.name)
                group.own_bytes = None
        return self._recorder.record(lambda: run(*given))

    def _check_sharing(self, tensors: list[int], in_place: list[int], inputs: tuple[Any, ...]) -> None:
        """A write to one input must reach every other that shares its memory: only in place it does."""
        owners: dict[int, int] = {}
        for position in tensors:
            storage = inputs[position].untyped_storage()._cdata
            other = owners.setdefault(storage, position)
            if other == position or (position in in_place and other in in_place):
                continue
            if self.specs[position].mutated or self.specs[other].mutated:
                raise CannotRecord(f"{self._label(other)} and {self._label(position)} share memory and one is written")

    def _finish(
        self,
        inputs: tuple[Any, ...],
        given: list[Any],
        in_place: list[int],
        copied: list[CopiedInput],
        recorded: Recorded,
        copied_out: Skipped,
    ) -> Recording:
        tensors = [(i, v) for i, (spec, v) in enumerate(zip(self.specs, inputs)) if spec.kind == "tensor"]
        results = tuple(_result_of(value, given) for value in recorded.outputs)
        return Recording(
            scalars=tuple((i, v) for i, (spec, v) in enumerate(zip(self.specs, inputs)) if spec.kind == "scalar"),
            tensors=tuple(TensorFact(i, v.dtype, v.device, tuple(v.shape), v.stride()) for i, v in tensors),
            fixed=tuple((position, inputs[position].data_ptr()) for position in in_place),
            copied=tuple(copied),
            mutated=tuple(i for i, _ in tensors if self.specs[i].mutated),
            results=results,
            copied_out=copied_out,
            replay=recorded.replay,
            release=recorded.release,
            lane=recorded.lane,
            reserved_bytes=recorded.reserved_bytes,
            again_bytes=recorded.again_bytes,
            borrowed=frozenset(
                inputs[position].untyped_storage().data_ptr() for position in in_place if not self._owned(position)
            ),
        )

    def _drop(self, group: _Group, recording: Recording) -> None:
        """Forget a recording; its memory stays as long as somebody refers to its results."""
        group.recordings.remove(recording)
        self.table.remove(recording)  # no replay of it begins any more
        while self.table.running:  # one of another thread: microseconds
            time.sleep(0)
        recording.release()

    def _label(self, position: int) -> str:
        name = self.specs[position].name
        return f"input {position}" + (f" ({name})" if name else "")

    def _tell(self, told: set[str], kind: str, reason: str, *, always: bool = False) -> None:
        """Report a decision; one that recurs on every call is reported once."""
        if always or reason not in told:
            told.add(reason)
            self._report(GraphDecision(kind, reason, self.name))

    def _over_limit(self) -> None:
        reason = f"more than {self.settings.sizes_limit} different sizes: further ones run without a CUDA graph"
        if reason not in self._told:
            warnings.warn(
                f"flambeau: {self.name} was called with {reason}; pad the inputs to fewer sizes, or mark what changes",
                RuntimeWarning,
                stacklevel=2,
            )
        self._tell(self._told, "plain", reason)

    def _close(self, error: Exception) -> None:
        """Recording raised: the program stays plain for good."""
        self.closed = f"recording raised {type(error).__name__}: {error}"
        self._report(GraphDecision("failed", self.closed, self.name))
        warnings.warn(f"flambeau: {self.name} runs without a CUDA graph: {self.closed}", RuntimeWarning, stacklevel=2)


def _result_of(value: Any, given: list[Any]) -> Result:
    """What an output of the recorded run is: an input, a window on one, memory of the recording, or a number."""
    if not isinstance(value, torch.Tensor):
        return Result("value", value)
    for position, tensor in enumerate(given):
        if value is tensor:
            return Result("input", position=position)
    storage = value.untyped_storage()._cdata
    for position, tensor in enumerate(given):
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage()._cdata == storage:
            start = tensor.storage_offset() * tensor.element_size()
            if start % value.element_size():
                raise CannotRecord("a result is a window on an input that starts between its elements")
            return Result("alias", _layout_of(value), position, value.storage_offset() - start // value.element_size())
    return Result("own", value)


def _layout_of(value: torch.Tensor) -> torch.Tensor:
    """Sizes, strides and dtype without the memory."""
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
