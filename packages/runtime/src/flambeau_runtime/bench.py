"""Timing that can be trusted: calibrated batches, interleaved contestants, medians with their spread.

In: functions of no arguments. Out: ``Measurement`` records in seconds per call. A contestant's samples are taken in
turn with the others', so that a busy machine or a changing clock rate hits all of them alike.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import frozen

from .accelerators import accelerator_of

_MINIMAL_BATCH_SECONDS = 0.002
_MAXIMAL_BATCH = 1 << 20


@frozen
class Measurement:
    """Seconds per call: the median, the quartiles around it, the minimum; from ``samples`` batches of ``batch`` calls."""

    median: float
    low: float
    high: float
    minimum: float
    samples: int
    batch: int

    @property
    def spread(self) -> float:
        """The distance of the quartiles relative to the median: above ~0.1 the machine was not quiet."""
        return (self.high - self.low) / self.median if self.median else 0.0


def measure(function: Callable[[], Any], *, seconds: float = 0.5, device: str = "cpu") -> Measurement:
    """Time one function for about ``seconds``; ``device="cuda"``, or any accelerator, waits for it at the end of each batch."""
    return compare({"only": function}, seconds=seconds, device=device)["only"]


def compare(
    functions: Mapping[str, Callable[[], Any]], *, seconds: float = 0.5, device: str = "cpu"
) -> dict[str, Measurement]:
    """Time several functions in turn, about ``seconds`` each. An exception of one of them passes through."""
    with _quiet():
        batches = {name: _calibrate(function, device) for name, function in functions.items()}
        samples: dict[str, list[float]] = {name: [] for name in functions}
        deadline = time.perf_counter() + seconds * len(functions)
        while time.perf_counter() < deadline or min(map(len, samples.values())) < 3:
            for name, function in functions.items():
                samples[name].append(_batch(function, batches[name], device))
    return {name: _summary(values, batches[name]) for name, values in samples.items()}


def _calibrate(function: Callable[[], Any], device: str) -> int:
    """Calls per batch, so that the clock's own cost disappears. Also the warm-up."""
    function()
    batch = 1
    while batch < _MAXIMAL_BATCH:
        total = _batch(function, batch, device) * batch
        if total >= _MINIMAL_BATCH_SECONDS:
            break
        batch = max(batch * 2, int(batch * _MINIMAL_BATCH_SECONDS / max(total, 1e-9)))
    return min(batch, _MAXIMAL_BATCH)


def _batch(function: Callable[[], Any], batch: int, device: str) -> float:
    wait(device)
    started = time.perf_counter()
    for _ in range(batch):
        function()
    wait(device)
    return (time.perf_counter() - started) / batch


def wait(device: str) -> None:
    """Until a device of this type, the current one, has done all that was asked of it."""
    accelerator = accelerator_of(torch.device(device))
    if accelerator is not None:
        accelerator.synchronize()


def _summary(values: list[float], batch: int) -> Measurement:
    low, median, high = statistics.quantiles(values, n=4)
    return Measurement(median, low, high, min(values), len(values), batch)


@contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection inside of a batch."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
