"""A CUDA device that says it can measure, and a clock that says what a test wants: no GPU is needed.

In: pytest's monkeypatch. Out: ``Clock``. Answers are kept in a store of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from attrs import define, evolve, field

from flambeau_inductor.autotune import asked, questions
from flambeau_inductor.devices import CUDA, registry
from flambeau_runtime import Artifact, Store

Seconds = Callable[[Artifact, int, int], float | None]


@define
class Clock:
    """``groups`` are the programs that were timed beside each other, in the order in which they were asked for. ``started`` are the devices for which the process was
    started ahead. ``seconds`` tells what one takes, given its place
    in its group and the size of that; the same for all by default."""

    seconds: Seconds = lambda artifact, place, size: 1.0
    groups: list[list[Artifact]] = field(factory=list)
    started: list[torch.device] = field(factory=list)
    store: Store = field(factory=lambda: Store(None))

    def time_groups(
        self, groups: Sequence[Sequence[Artifact]], *, device, store, done=None
    ) -> list[list[float | None]]:
        self.groups += [list(group) for group in groups]
        for number in range(len(groups)):
            done(number)
        return [[self.seconds(artifact, place, len(group)) for place, artifact in enumerate(group)] for group in groups]

    @property
    def sizes(self) -> list[int]:
        """How many programs each group had."""
        return [len(group) for group in self.groups]


def install(monkeypatch: pytest.MonkeyPatch, **facts) -> Clock:
    """The device and the clock, for as long as ``monkeypatch`` lasts."""
    clock = Clock()
    told = {"can_measure": lambda: True, "free_bytes": lambda device: 1 << 40, **facts}
    monkeypatch.setitem(registry._DEVICES._records, "cuda", evolve(CUDA, **told))
    monkeypatch.setattr(questions, "time_groups", clock.time_groups)
    monkeypatch.setattr(asked, "start", clock.started.append)
    monkeypatch.setattr(questions, "default_store", lambda: clock.store)
    return clock


def entries(artifact: Artifact) -> list[str]:
    """The kernels' names."""
    return [kernel.entry for kernel in artifact.kernels]


def gemms(artifact: Artifact) -> int:
    """How many kernels of products there are."""
    return sum("gemm" in entry for entry in entries(artifact))
