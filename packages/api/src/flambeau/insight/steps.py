"""Kernels and library calls of programs, with what they are and how long they take.

In: programs (`ProgramRecord`), and a function that runs them under torch's profiler. Out: one `Step` for each launch and call of a program.
Times are those of the native executor: on a CPU of the range around a step, on a CUDA device of the kernels that it queued.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from attrs import Factory, define, frozen

from flambeau_runtime.artifact import Alloc, Artifact, Launch
from flambeau_runtime.limits import limits_of
from flambeau_runtime.ranges import NamedStep, named_steps, programs_of

#: A level of libkineto's log; the lines of each profile are of level 5.
_KINETO_ERRORS_ALONE = "6"
_HALVES = frozenset((torch.float16, torch.bfloat16))


@frozen
class Step:
    """One kernel launch or library call of a program.

    Attributes:
        name: of the kernel, or `extern_kernels.<op>`.
        kind: "kernel" or "library call".
        graph: number of the captured graph, from 0.
        direction: "forward" or "backward".
        ops: the operations in it.
        user_lines: where the program says so, as `file:line in function`.
        modules: the paths of the modules that do.
        bytes, flops: what it moves at least and computes, for the sizes that it was compiled for.
        estimated_seconds: the least time for that on this device.
        measured_seconds: of one call of the graph, all its runs together; None where it was not measured.
        calls: how often it runs in a call of the graph; 1 where that was not measured.
    """

    name: str
    kind: str
    graph: int
    direction: str
    ops: tuple[str, ...]
    user_lines: tuple[str, ...]
    modules: tuple[str, ...]
    bytes: int
    flops: int
    estimated_seconds: float
    measured_seconds: float | None = None
    calls: float = 1

    @property
    def bytes_per_second(self) -> float | None:
        """What it reaches."""
        return self.bytes * self.calls / self.measured_seconds if self.measured_seconds else None

    @property
    def share_of_limit(self) -> float | None:
        """Estimated over measured time: 1 is as fast as the device copies or multiplies. Above it, what is read lies in a cache."""
        return self.estimated_seconds * self.calls / self.measured_seconds if self.measured_seconds else None


@define
class Taken:
    """Times of one step, of each of its calls."""

    each: list[float] = Factory(list)

    @property
    def calls(self) -> int:
        """How many there were."""
        return len(self.each)

    @property
    def seconds(self) -> float:
        """All of them, as if each took the median: one that waited for another process says nothing of the step."""
        return statistics.median(self.each) * len(self.each)


def steps_of(
    graph: int, direction: str, artifact: Artifact, taken: Mapping[str, Taken] | None = None, runs: int = 1
) -> list[Step]:
    """The steps of a program in order; `taken`: times by the steps' names, of so many runs. A step that never ran then is left out."""
    digest = artifact.digest[:16]
    device = device_of(artifact)
    made = []
    for number, program in enumerate(programs_of(artifact.program)):
        steps = named_steps(digest, number, program, artifact.kernels)
        for instruction, step in zip(program.instructions, steps, strict=True):
            if step is None or (taken is not None and step.step not in taken):
                continue
            half = isinstance(instruction, Launch) and not _HALVES.isdisjoint(
                artifact.kernels[instruction.kernel].dtypes
            )
            time = taken[step.step] if taken is not None else None
            made.append(_step(step, graph, direction, device, half, time, runs))
    return made


def _step(
    step: NamedStep, graph: int, direction: str, device: torch.device, half: bool, time: Taken | None, runs: int
) -> Step:
    moved, flops = int(step.meta.get("bytes") or 0), int(step.meta.get("flops") or 0)
    return Step(
        step.name,
        step.kind,
        graph,
        direction,
        tuple(step.meta.get("ops") or ()),
        tuple(step.meta.get("stack") or ()),
        tuple(step.meta.get("modules") or ()),
        moved,
        flops,
        limits_of(device).seconds(moved, flops, half=half),
        None if time is None else time.seconds / runs,
        1 if time is None else time.calls / runs,
    )


def device_of(artifact: Artifact) -> torch.device:
    """The accelerator that a program uses, else the CPU."""
    program = artifact.program
    given = [spec.device for spec in program.inputs] + [i.device for i in program.instructions if isinstance(i, Alloc)]
    return next((torch.device(d.type) for d in given if d is not None and d.type != "cpu"), torch.device("cpu"))


@contextmanager
def profiler_says_nothing() -> Iterator[None]:
    """Without the lines that Kineto, torch's profiler, writes to standard error when it starts and stops. It asks once how much it may say: at its first use."""
    if "KINETO_LOG_LEVEL" in os.environ:
        yield
        return
    os.environ["KINETO_LOG_LEVEL"] = _KINETO_ERRORS_ALONE
    try:
        yield
    finally:
        os.environ.pop("KINETO_LOG_LEVEL", None)


def profiled(run: Callable[[], Any], *, cuda: bool, runs: int) -> dict[str, Taken]:
    """The times of the steps that `run` executes, of so many runs after one that is not counted."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    # The first run under a profiler makes the names of the ranges.
    with profiler_says_nothing(), torch.profiler.profile(activities=activities[:1]):
        run()
    with torch.profiler.profile(activities=activities, record_shapes=True, acc_events=True) as profile:
        for _ in range(runs):
            run()
        if cuda:
            torch.cuda.synchronize()
    return times_of(profile.events() or (), cuda=cuda)


def times_of(events: Iterable[Any], *, cuda: bool) -> dict[str, Taken]:
    """Times by the steps' names, from the events of a profile."""
    taken: dict[str, Taken] = {}
    for event in events:
        step = event.kwinputs.get("step") if event.kwinputs else None
        if step is None:
            continue
        seconds = (event.device_time_total if cuda else event.time_range.elapsed_us()) / 1e6
        taken.setdefault(step, Taken()).each.append(seconds)
    return taken
