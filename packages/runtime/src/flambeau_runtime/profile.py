"""Where time goes: spans and counters while somebody records, ranges in torch's profiler while it is active.

In: ``span`` and ``count`` calls at the places worth watching. Out: a ``Profile``. Without a recorder both cost one
test of a list.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, field, frozen


@frozen
class Span:
    """One timed stretch: its name, start and duration in seconds (monotonic clock), thread, and facts."""

    name: str
    started: float
    seconds: float
    thread: int
    facts: dict[str, Any]


@define
class Profile:
    """What was recorded: spans in the order they ended, and counters."""

    spans: list[Span] = field(factory=list)
    counters: Counter[str] = field(factory=Counter)

    def seconds(self, name: str) -> float:
        """Total time of the spans called ``name``."""
        return sum(span.seconds for span in self.spans if span.name == name)

    def chrome_trace(self) -> dict[str, Any]:
        """The spans in the form of Chrome's trace viewer, JSON-able."""
        events = [
            {"name": s.name, "ph": "X", "ts": s.started * 1e6, "dur": s.seconds * 1e6, "pid": 0, "tid": s.thread,
             "args": {key: str(value) for key, value in s.facts.items()}}
            for s in self.spans
        ]  # fmt: skip
        return {"traceEvents": events}


_recorders: list[Profile] = []
_guard = threading.Lock()


@contextmanager
def recording() -> Iterator[Profile]:
    """Record every span and counter of the process, all threads, inside of the ``with`` block."""
    profile = Profile()
    with _guard:
        _recorders.append(profile)
    try:
        yield profile
    finally:
        with _guard:
            # By identity: two profiles with the same content are equal.
            _recorders[:] = [other for other in _recorders if other is not profile]


@contextmanager
def span(name: str, **facts: Any) -> Iterator[None]:
    """Time the ``with`` block as ``name``; it is a range of torch's profiler too, while that is active."""
    if torch.autograd._profiler_enabled():
        with torch.profiler.record_function(f"flambeau:{name}"), _recorded(name, facts):
            yield
        return
    with _recorded(name, facts):
        yield


@contextmanager
def _recorded(name: str, facts: dict[str, Any]) -> Iterator[None]:
    if not _recorders:
        yield
        return
    started = time.perf_counter()
    try:
        yield
    finally:
        made = Span(name, started, time.perf_counter() - started, threading.get_ident(), facts)
        with _guard:
            for profile in _recorders:
                profile.spans.append(made)


def count(name: str, amount: int = 1) -> None:
    """Add to the counter ``name`` of everybody who records."""
    if _recorders:
        with _guard:
            for profile in _recorders:
                profile.counters[name] += amount
