"""How long programs take that compute the same, each beginning with cold caches.

In: artifacts. Out: seconds of a call of each, None for one that fails, or whose results are not those of the first one. ``time_artifacts`` runs them in this process; ``time_groups`` in a process of its
own, so that a kernel which reads where it must not, or never ends, takes nothing down but that process: the programs that are left are timed in a new
one. Their operands are the process's own: nothing of the caller's is read or written.
"""

from __future__ import annotations

import atexit
import functools
import math
import os
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import torch
from attrs import frozen

from . import library_settings
from .artifact import Artifact, ConstantSpec, InputSpec
from .artifact import Scalar as Register
from .cache import Store, default_store
from .executor import load
from .log import logger
from .triton_kernels import Cubin, kernel_requests, submit_stored
from .workers import Answer, Pool, Request, WorkerFailed

#: Calls of each program, in turn; the median counts.
ROUNDS = 11
#: Bytes that are written between two calls: more than any cache of a GPU holds.
_FLUSHED = 256 << 20
#: How long one group of programs may take. The first one waits for the process to import torch and to find its device.
PATIENCE_SECONDS = 120.0
#: By how much two ways to compute the same may differ, relative to the result's size: several roundings of bfloat16.
_ROUNDING = 0.05
#: How long the process waits for more programs.
LINGER_SECONDS = 30.0
#: Random numbers that are made at a time.
_PART = 1 << 26
#: Cycles a second of a GPU's clock, about, and for how long at most one is kept busy while a call is queued.
_CYCLES, _LONGEST_LEAD = 2e9, 0.02


def start(device: torch.device) -> None:
    """Start the process that times, so that it is ready when programs come. Returns at once."""
    _process().start(_request((), device))


def time_apart(
    artifacts: Sequence[Artifact], *, device: torch.device, store: Store | None = None
) -> list[float | None]:
    """Seconds of a call of each artifact, in another process, on ``device``."""
    return time_groups([artifacts], device=device, store=store)[0]


def time_groups(
    groups: Sequence[Sequence[Artifact]],
    *,
    device: torch.device,
    store: Store | None = None,
    done: Callable[[int], None] | None = None,
) -> list[list[float | None]]:
    """Seconds of a call of each artifact, in another process, on ``device``; those of a group are timed in turn, beside each other.

    Their kernels are compiled here, all at once: a group is timed as soon as its own are there. ``done`` is told the number of each group behind us.
    """
    store = default_store() if store is None else store
    cubins = [[_submitted(artifact, device, store) for artifact in group] for group in groups]
    found: list[list[float | None]] = []
    for number, group in enumerate(groups):
        made = [all(cubin.exception() is None for cubin in waiting) for waiting in cubins[number]]
        times = iter(_survived([artifact for artifact, whole in zip(group, made, strict=True) if whole], device))
        found.append([_known(next(times), artifact) if whole else None for whole, artifact in zip(made, group)])
        if done is not None:
            done(number)
    return found


def _known(taken: float | None, artifact: Artifact) -> float | None:
    """What a program takes, if it computes what it should."""
    if taken is None or not math.isnan(taken):
        return taken
    kernels = [kernel.entry for kernel in artifact.kernels]
    logger.info(
        "candidate_differs", artifact="autotuning", kernels=kernels, facts=[k.meta for k in artifact.kernels][:1]
    )
    return None


def _submitted(artifact: Artifact, device: torch.device, store: Store) -> list[Future[Cubin]]:
    if device.type != "cuda":
        return []
    major, minor = torch.cuda.get_device_capability(device)
    return submit_stored(kernel_requests(artifact, 10 * major + minor), store)


def _survived(artifacts: Sequence[Artifact], device: torch.device) -> list[float | None]:
    answer = _ask(artifacts, device)
    for artifact, seconds in zip(artifacts, [] if isinstance(answer, WorkerFailed) else answer):
        kernels = [kernel.entry for kernel in artifact.kernels]
        logger.debug("measured", artifact="benchmarking", kernels=kernels, device=str(device), seconds=seconds)
    if not isinstance(answer, WorkerFailed):
        return answer
    # The process died: each by itself in one of its own tells whose fault it is.
    alone = [_ask([artifact], device) for artifact in artifacts]
    return [None if isinstance(found, WorkerFailed) else found[0] for found in alone]


def _ask(artifacts: Sequence[Artifact], device: torch.device) -> list[float | None] | WorkerFailed:
    if not artifacts:
        return []
    answer = _process().ask(_request(artifacts, device))
    return answer if isinstance(answer, WorkerFailed) else list(answer[0]["seconds"])


def _request(artifacts: Sequence[Artifact], device: torch.device) -> Request:
    """Libraries compute there as they do here: in TF32 or not, for one."""
    header = {"device": str(device), "settings": library_settings.current()}
    return Request("time", header, tuple(artifact.to_bytes() for artifact in artifacts))


class _Process:
    """The process that times, one request at a time: started at the first, and anew where it died. It ends when nothing was asked for ``linger`` seconds, as
    it holds memory of the device."""

    def __init__(self, linger: float = LINGER_SECONDS) -> None:
        self._pool = Pool(1)
        self._turn = threading.Lock()
        self._starting: list[Future[Answer | WorkerFailed]] = []
        self._linger = linger
        self._timer: threading.Timer | None = None
        atexit.register(self.close)

    def close(self) -> None:
        """End the process; the next request starts another."""
        with self._turn:
            self._stop_timer()
            self._pool.close()
            self._starting = []

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait_for_more(self) -> None:
        self._stop_timer()
        self._timer = threading.Timer(self._linger, self.close)
        self._timer.daemon = True
        self._timer.start()

    def start(self, request: Request) -> None:
        """Send a request whose answer nobody wants, the first time."""
        with self._turn:
            if not self._starting:
                self._starting = self._pool.submit([request])
                self._wait_for_more()

    def ask(self, request: Request) -> Answer | WorkerFailed:
        """The answer to a request, or how it failed."""
        with self._turn:
            for pending in self._starting:
                self._answer(pending)
            (pending,) = self._pool.submit([request])
            try:
                return self._answer(pending)
            finally:
                self._wait_for_more()

    def _answer(self, pending: Future[Answer | WorkerFailed]) -> Answer | WorkerFailed:
        try:
            return pending.result(PATIENCE_SECONDS)
        except TimeoutError:
            # What never ends ends with its process, and its request fails.
            self._pool.kill()
            return pending.result()


@functools.cache
def _of_process(process: int) -> _Process:
    return _Process()


def _process() -> _Process:
    """The one of this process: a child of a fork starts its own."""
    return _of_process(os.getpid())


def time_artifacts(artifacts: Sequence[Artifact], device: torch.device, rounds: int = ROUNDS) -> list[float | None]:
    """Seconds of a call of each artifact on ``device`` (without an index: the current one of its type), in this process; what their operands have in common is
    one tensor. NaN for one that does not compute what the first one does, None for one that raises."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return _time_artifacts(artifacts, device, rounds)


def _time_artifacts(artifacts: Sequence[Artifact], device: torch.device, rounds: int) -> list[float | None]:
    operands: dict[Any, torch.Tensor] = {}
    calls: list[Callable[[], Any] | None] = []
    taken: list[list[float]] = [[] for _ in artifacts]
    expected: tuple[Any, ...] | None = None
    for number, artifact in enumerate(artifacts):
        prepared = _prepared(artifact, operands)
        if prepared is not None and expected is None:
            expected = prepared.results
        elif prepared is not None and expected is not None and not _agree(prepared.results, expected):
            taken[number].append(math.nan)
            prepared = None
        calls.append(None if prepared is None else prepared.call)
    del expected
    clock = _GpuClock(device) if device.type == "cuda" else _Clock()
    for _ in range(rounds):
        for number, call in enumerate(calls):
            if call is not None:
                taken[number].append(clock(call))
    found = [statistics.median(times) if times else None for times in taken]
    calls.clear()
    operands.clear()
    if device.type == "cuda":
        # The caller's process may need all of the device.
        torch.cuda.empty_cache()
    return found


@frozen(eq=False)
class _Prepared:
    """A call that has run, and what it gave."""

    call: Callable[[], Any]
    results: tuple[Any, ...]


def _prepared(artifact: Artifact, operands: dict[Any, torch.Tensor]) -> _Prepared | None:
    """None where it raises."""
    hints = {symbol.register: symbol.hint for symbol in artifact.symbols if symbol.hint is not None}
    specs = artifact.program.inputs
    try:
        constants = [_constant(spec, operands) for spec in artifact.constants if spec.data is None]
        program = load(artifact, constants=constants)
        inputs = [_example(spec, hints, operands, place) for spec, place in zip(specs, _places(specs), strict=True)]
        # What is written to is the same again for the next program, and so are random numbers.
        fresh = [_copy(value) if spec.mutated else value for spec, value in zip(specs, inputs, strict=True)]
        torch.manual_seed(0)
        results = program(*fresh)
    except Exception:
        # Whatever is wrong with a candidate, it is not chosen.
        return None
    return _Prepared(functools.partial(program, *inputs), results)


def _places(specs: Sequence[InputSpec]) -> list[str | int]:
    """What an input is found by in another program: its name, as each may read them in an order of its own; its position where the name is none."""
    counts = Counter(spec.name for spec in specs)
    return [spec.name if spec.name and counts[spec.name] == 1 else number for number, spec in enumerate(specs)]


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def _agree(found: tuple[Any, ...], expected: tuple[Any, ...]) -> bool:
    """Whether floating results are those of another way to compute them, but for rounding: each relative to its own size. What is random or chaotic may differ by
    more, and is then no candidate either."""
    for ours, theirs in zip(found, expected, strict=True):
        if not isinstance(theirs, torch.Tensor) or not theirs.is_floating_point() or theirs.numel() == 0:
            continue
        if ours.shape != theirs.shape:
            return False
        # Where random operands give no number, none is compared; where they give one, both have to.
        known = theirs.isfinite()
        theirs, ours = (part.masked_fill(~known, 0.0) for part in (theirs, ours))
        size, error = (torch.linalg.vector_norm(part, dtype=torch.float32) for part in (theirs, ours - theirs))
        if not bool(error <= _ROUNDING * size):
            return False
    return True


def _example(
    spec: InputSpec, hints: Mapping[int, int | float], operands: dict[Any, torch.Tensor], place: str | int
) -> torch.Tensor | int | float:
    """What stands for an input: the number that was seen while compiling, or a tensor of its layout, which other programs of the same input (``place``) share."""
    if spec.kind == "scalar":
        if spec.register not in hints:
            raise ValueError("programs are timed with numbers that were seen")
        return hints[spec.register]
    if spec.dtype is None or spec.sizes is None or spec.strides is None:
        raise ValueError("programs are timed with tensors of known sizes")
    # The index of a device names a slot of the program; the process has one device, the current one.
    device = torch.device(spec.device.type) if spec.device is not None else None
    sizes, strides = [[_number(n, hints) for n in part] for part in (spec.sizes, spec.strides)]
    key = (place, tuple(sizes), tuple(strides), spec.dtype, device)
    if key not in operands:
        operands[key] = _tensor(sizes, strides, spec.dtype, device)
    return operands[key]


def _number(value: Any, hints: Mapping[int, int | float]) -> int:
    found = hints.get(value.index) if isinstance(value, Register) else value
    if found is None:
        raise ValueError("programs are timed with tensors of known sizes")
    return int(found)


def _tensor(
    sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device | None
) -> torch.Tensor:
    """Small random numbers, positive ones for vectors, among which are variances; zeros for whole numbers, which may be positions."""
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
    flat = torch.zeros(extent, dtype=dtype, device=device)
    if dtype.is_floating_point:
        # In parts: the random numbers are float32, and parameters may fill half of the device.
        for part in flat.split(_PART):
            drawn = torch.randn(part.numel(), device=device) * 0.1
            part.copy_(drawn.abs() if len(sizes) == 1 else drawn)
    return flat.as_strided(sizes, strides)


def _constant(spec: ConstantSpec, operands: dict[Any, torch.Tensor]) -> torch.Tensor:
    key = ("constant", spec.register, spec.name, spec.sizes, spec.dtype)
    if key not in operands:
        strides = torch.empty(spec.sizes, device="meta").stride()
        operands[key] = _tensor(spec.sizes, strides, spec.dtype, torch.device(spec.device.type))
    return operands[key]


class _Clock:
    """Seconds of one call on the CPU."""

    def __call__(self, call: Callable[[], Any]) -> float:
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin


class _GpuClock:
    """Seconds of one call on a GPU, after all that its caches held is gone. The GPU is kept busy while the call is queued, so that no launch comes too
    late: what is timed are the kernels, not the host."""

    def __init__(self, device: torch.device) -> None:
        self._room = torch.empty(_FLUSHED, dtype=torch.int8, device=device)
        self._queued = 0.0

    def __call__(self, call: Callable[[], Any]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._room.zero_()
        torch.cuda._sleep(int(min(2 * self._queued, _LONGEST_LEAD) * _CYCLES))
        begin.record()
        before = time.perf_counter()
        call()
        self._queued = time.perf_counter() - before
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1000
