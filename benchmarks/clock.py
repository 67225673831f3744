"""Clocks and scales for both devices: seconds of a call, seconds of the device alone, peak memory.

In: a callable of no arguments. Out: plain numbers. On a GPU every reading waits for the device; nothing here takes turns with
other processes, `gate.py` does.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen

from .surroundings import disturbance, watched

Call = Callable[[], Any]
#: Seconds of one batch of calls, long against the clock's and the synchronisation's own cost.
BATCH_SECONDS = 0.02
LEAST_SAMPLES = 7
#: How often a measurement that was disturbed is made at most.
ATTEMPTS = 3
#: About the H200's clock; only how long the device is kept busy before a measurement depends on it.
CYCLES_PER_SECOND = 2e9
#: What is written between two calls that begin with cold caches: more than any GPU's hold.
FLUSHED_BYTES = 256 << 20


def wait(device: str) -> None:
    """Until the device has done all that was asked of it."""
    if device == "cuda":
        torch.cuda.synchronize()


def give_back(device: str) -> None:
    """Leave memory that no tensor uses to other processes on the device."""
    if device == "cuda":
        torch.cuda.empty_cache()


def seconds_of(call: Call, device: str) -> float:
    """Seconds of one call."""
    wait(device)
    start = time.perf_counter()
    call()
    wait(device)
    return time.perf_counter() - start


def seconds_per_call(
    call: Call, device: str, budget: float, rounds: int = 1, turn: Call | None = None
) -> dict[str, float]:
    """Seconds of one call in a row of calls: median and best of batches that together last `budget` seconds.

    With several `rounds`, others are timed in between: `turn` returns when it is this one's.

    `low` and `high` are the quartiles; `others` and `drift` say how quiet the machine was (`surroundings.py`): a round that was
    disturbed is timed again, and the quietest counts.
    `host` is what the row costs until the last call returned, the device still working: where it equals the median on a GPU,
    the workload is bound by the way to the kernels.
    """
    for _ in range(5 if rounds == 1 else 1):
        call()
    once = max(min(seconds_of(call, device) for _ in range(2)), 1e-7)
    batch = max(1, int(BATCH_SECONDS / once))
    samples, host = list[float](), list[float]()
    surroundings = {"others": 0.0, "drift": 1.0}
    for number in range(rounds):
        if turn is not None and number:
            turn()
        part = _quietest(lambda: _timed(call, device, batch, budget / rounds, -(-LEAST_SAMPLES // rounds)))
        samples += part.samples
        host += part.host
        surroundings = {key: max(value, surroundings[key]) for key, value in part.surroundings.items()}
    low, _, high = statistics.quantiles(samples, n=4)
    return {
        "median": statistics.median(samples),
        "best": min(samples),
        "low": low,
        "high": high,
        "host": statistics.median(host),
        "samples": len(samples),
        **surroundings,
    }


@frozen
class _Part:
    """Seconds of calls that were timed in a row: until the device was done, until the last call returned; and how quiet it was meanwhile."""

    samples: list[float]
    host: list[float]
    surroundings: dict[str, float]


def _timed(call: Call, device: str, batch: int, budget: float, least: int) -> _Part:
    samples, host = list[float](), list[float]()
    with watched() as found:
        deadline = time.perf_counter() + budget
        while time.perf_counter() < deadline or len(samples) < least:
            start = time.perf_counter()
            for _ in range(batch):
                call()
            host.append((time.perf_counter() - start) / batch)
            wait(device)
            samples.append((time.perf_counter() - start) / batch)
    return _Part(samples, host, found)


def _quietest(measure: Callable[[], _Part]) -> _Part:
    """The first measurement that nothing disturbed, or the least disturbed one of a few."""
    parts = list[_Part]()
    while len(parts) < ATTEMPTS:
        parts.append(measure())
        if disturbance(parts[-1].surroundings) <= 1:
            break
    return min(parts, key=lambda part: disturbance(part.surroundings))


def device_seconds(call: Call, device: str, budget: float = 0.2) -> float:
    """Seconds that the device itself spends on one call, launches already queued; on a CPU, the best call.

    The device is first kept busy for longer than the host needs to queue a whole row of calls, so that between two events on
    the stream there is nothing but the calls' kernels.
    """
    for _ in range(3):
        call()
    once = seconds_of(call, device)
    if device != "cuda":
        return min(seconds_of(call, device) for _ in range(max(3, int(budget / once))))
    calls = max(3, min(50, int(budget / 5 / once)))
    samples = []
    for _ in range(5):
        torch.cuda._sleep(int(CYCLES_PER_SECOND * max(2e-3, 1.5 * once * calls)))
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(calls):
            call()
        last.record()
        torch.cuda.synchronize()
        samples.append(first.elapsed_time(last) * 1e-3 / calls)
    return statistics.median(samples)


def peak_bytes(call: Call, device: str) -> dict[str, int]:
    """Peak bytes of one steady call: on a GPU of all live tensors, parameters included; on a CPU those the call allocates."""
    if device == "cuda":
        wait(device)
        give_back(device)
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    level = peak = 0
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        level += event.nbytes()
        peak = max(peak, level)
    return {"peak_bytes": peak}


def kernels(call: Call, device: str, shown: int = 12) -> dict[str, Any]:
    """What the device runs in one call: kernels, their microseconds, and the longest by name."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    call()
    wait(device)
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(3):
            call()
        wait(device)
    own = "self_device_time_total" if device == "cuda" else "self_cpu_time_total"
    wanted = torch.autograd.DeviceType.CUDA if device == "cuda" else torch.autograd.DeviceType.CPU
    # On the device, a range that someone named spans the kernels in it: counting it would count them twice.
    rows = [
        row
        for row in profile.key_averages()
        if row.device_type == wanted and getattr(row, own) > 0 and not row.is_user_annotation
    ]
    rows.sort(key=lambda row: -getattr(row, own))
    return {
        "kernels": sum(row.count for row in rows) / 3,
        "device_us": sum(getattr(row, own) for row in rows) / 3,
        "top": [[row.key[:100], row.count / 3, round(getattr(row, own) / 3, 2)] for row in rows[:shown]],
    }


def cold_seconds(calls: Sequence[Call], device: str, rounds: int = 9) -> list[float]:
    """Seconds that the device spends on each call after all that its caches held is gone: medians of rounds in which they take turns."""
    samples: list[list[float]] = [[] for _ in calls]
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device=device) if device == "cuda" else None
    queued = [0.0 for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for number, call in enumerate(calls):
            if flushed is None:
                samples[number].append(seconds_of(call, device))
                continue
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            flushed.zero_()
            # Launches are queued while the device is kept busy, so that it never waits for the host.
            torch.cuda._sleep(int(CYCLES_PER_SECOND * min(2 * queued[number], 0.02)))
            first.record()
            start = time.perf_counter()
            call()
            queued[number] = time.perf_counter() - start
            last.record()
            last.synchronize()
            samples[number].append(first.elapsed_time(last) * 1e-3)
    return [statistics.median(taken) for taken in samples]
