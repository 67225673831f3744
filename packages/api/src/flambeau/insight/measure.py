"""What the graphs of one call take: times beside eager, kernels, memory. Nothing of the program is run again but its graphs.

In: the `WatchedGraph`s of a call. Out: `Measured`. Inputs that a graph writes to are copies, gradients go nowhere (`torch.autograd.grad`), random numbers are
drawn from a copy of the generators' state. What cannot be measured is said in a note.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import Factory, define, frozen
from torch import Tensor
from torch.utils import _pytree as pytree

from flambeau_runtime.bench import compare

from .memory import peak_bytes
from .steps import Step, device_of, profiled, steps_of
from .watch import WatchedGraph

_SECONDS = 0.15
_PROFILED_SECONDS = 0.1
_LEAST_RUNS, _MOST_RUNS = 3, 20


@frozen
class Speed:
    """The same work in eager and compiled, medians of many runs.

    Attributes:
        what: "whole call" or "graph 0", with "forward and backward" where gradients are computed.
        eager_seconds, compiled_seconds: of one run.
    """

    what: str
    eager_seconds: float
    compiled_seconds: float

    @property
    def factor(self) -> float:
        """How many times as fast the compiled one is."""
        return self.eager_seconds / self.compiled_seconds


@frozen
class Memory:
    """Peak bytes of a call of one graph, beyond its inputs: as planned, and where eager runs the captured operations.

    Attributes:
        what: as in `Speed`.
        planned_bytes, eager_bytes: the peaks.
    """

    what: str
    planned_bytes: int
    eager_bytes: int


@define
class Measured:
    """What was found, and in words what was not."""

    steps: list[Step] = Factory(list)
    speeds: list[Speed] = Factory(list)
    memory: list[Memory] = Factory(list)
    notes: list[str] = Factory(list)


def measured(graphs: Sequence[WatchedGraph], *, backward: bool = True, measure: bool = True) -> Measured:
    """Run every graph again, compiled and in eager, where nothing speaks against it."""
    found = Measured()
    for number, watched in enumerate(graphs):
        obstacle = "measure=False" if not measure else watched.obstacle
        if not obstacle and torch.autograd._profiler_enabled():
            obstacle = "a profiler is active"
        if obstacle:
            found.steps += _unmeasured(number, watched)
            found.notes.append(f"graph {number} was not measured: {obstacle}")
            continue
        try:
            with watched.surroundings():
                _measure(number, watched, found, backward)
        except Exception as error:
            found.steps += _unmeasured(number, watched)
            found.notes.append(
                f"graph {number} was not measured: running it again raised {type(error).__name__}: {error}"
            )
        finally:
            watched.let_go()
    return found


def _unmeasured(number: int, watched: WatchedGraph) -> list[Step]:
    return [step for p in watched.programs for step in steps_of(number, p.kind, p.artifact)]


def _measure(number: int, watched: WatchedGraph, found: Measured, backward: bool) -> None:
    device = next((device_of(program.artifact) for program in watched.programs), _first_device(watched))
    trains = backward and watched.grad_enabled and any(program.kind == "backward" for program in watched.programs)
    what = f"graph {number}" + (", forward and backward" if trains else "")
    captured = watched.eager  # made once: its code may be compiled anew
    eager = Run(lambda arguments: captured(*arguments), watched, trains)
    compiled = Run(watched.run, watched, trains)
    times = compare({"eager": eager, "compiled": compiled}, seconds=_SECONDS, device=device.type)
    found.speeds.append(Speed(what, times["eager"].median, times["compiled"].median))
    if watched.programs:
        runs = max(_LEAST_RUNS, min(_MOST_RUNS, int(_PROFILED_SECONDS / max(times["compiled"].median, 1e-6))))
        taken = profiled(compiled, cuda=device.type == "cuda", runs=runs)
        steps = [step for p in watched.programs for step in steps_of(number, p.kind, p.artifact, taken, runs)]
        if steps:
            found.steps += steps
        else:
            found.steps += _unmeasured(number, watched)
            found.notes.append(f"kernels of graph {number} were not measured: none of them shows in the profiler")
    plan = compiled if device.type == "cuda" else None if watched.plan is None else _planned(watched, trains)
    if plan is not None:
        del compiled
        gc.collect()
        # What is made once, tangents and names, is there before.
        plan()
        given = list(watched.arguments())
        found.memory.append(Memory(what, peak_bytes(plan, given, device), peak_bytes(eager, given, device)))


def _planned(watched: WatchedGraph, trains: bool) -> Run:
    assert watched.plan is not None
    stepped = watched.plan()
    boxed = bool(getattr(stepped, "_boxed_call", False))
    return Run(lambda arguments: stepped(arguments) if boxed else stepped(*arguments), watched, trains)


def _first_device(watched: WatchedGraph) -> torch.device:
    return next((v.device for v in watched.inputs or () if isinstance(v, Tensor)), torch.device("cpu"))


class Run:
    """One run of a graph, with gradients of all that wants them; the tangents are ones, made once."""

    def __init__(self, call: Callable[[list[Any]], Any], watched: WatchedGraph, trains: bool) -> None:
        self.call, self.watched, self.trains = call, watched, trains
        self.tangents: list[Tensor] | None = None

    def __call__(self) -> None:
        """Nothing is returned: what was computed is freed."""
        arguments = self.watched.arguments()
        wanted = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
        results = self.call(list(arguments))
        if not self.trains or not wanted:
            return
        outs = [value for value in pytree.tree_leaves(results) if isinstance(value, Tensor) and value.requires_grad]
        if not outs:
            return
        if self.tangents is None:
            self.tangents = [torch.ones_like(value) for value in outs]
        torch.autograd.grad(outs, wanted, self.tangents, allow_unused=True)


def whole_call(
    function: Callable[..., Any], compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Speed:
    """Both functions on these arguments; for functions that change nothing outside of themselves."""
    devices = {value.device.type for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
    devices |= {value.device.type for value in _state(function)}
    device = "cuda" if "cuda" in devices else "cpu"
    with torch.random.fork_rng(range(torch.cuda.device_count()) if device == "cuda" else []):
        times = compare(
            {"eager": lambda: function(*args, **kwargs), "compiled": lambda: compiled(*args, **kwargs)},
            seconds=_SECONDS,
            device=device,
        )
    return Speed("whole call", times["eager"].median, times["compiled"].median)


def _state(function: Any) -> list[Tensor]:
    return list(function.parameters()) if isinstance(function, torch.nn.Module) else []
