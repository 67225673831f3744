"""The graphs of one call with what they were called with, so that they can be run again afterwards.

In: a backend. Out: a backend that does the same, and a `WatchedGraph` for each graph in `Recorder.watched`. A captured graph has no effect but writes to
its inputs: running it again disturbs nothing where these are copies (`WatchedGraph.arguments`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from attrs import Factory, define
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from flambeau_capture.backend_call import is_boxed

from ..calling import on_first_call
from ..records import ProgramRecord, Recorder
from ..rescue import as_captured


@define(eq=False)
class WatchedGraph:
    """One compiled graph.

    Attributes:
        graph: as it was captured.
        compiled: what the backend made of it.
        programs: the programs of it.
        written: places of the inputs that it writes to; None where the backend does not say.
        inputs: those of its first call; None before it, and once they were let go.
        eager_reason: why it runs in eager, or "".
        grad_enabled, autocast: what it was called under.
        plan: makes the same of it, stepped through in Python, for a look at its memory; None where the backend is another.
        is_open: whether inputs of a call are still kept.
    """

    graph: fx.GraphModule
    compiled: Callable[..., Any]
    programs: tuple[ProgramRecord, ...] = ()
    written: frozenset[int] | None = None
    inputs: tuple[Any, ...] | None = None
    eager_reason: str = ""
    grad_enabled: bool = True
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    plan: Callable[[], Callable[..., Any]] | None = None
    is_open: bool = True
    _clones: dict[int, Tensor] = Factory(dict)

    @property
    def eager(self) -> Callable[..., Any]:
        """The captured operations, one after the other, by torch."""
        return as_captured(self.graph)

    @property
    def is_boxed(self) -> bool:
        """Whether it takes its inputs in a list, which it empties."""
        return is_boxed(self.compiled)

    def run(self, arguments: list[Any]) -> Any:
        """One call of the compiled graph."""
        return self.compiled(arguments) if self.is_boxed else self.compiled(*arguments)

    def arguments(self) -> list[Any]:
        """Inputs for one more call: in the place of what may be written a copy (the same one each time), and no history that leads out of the graph."""
        assert self.inputs is not None
        given = []
        for place, value in enumerate(self.inputs):
            if not isinstance(value, Tensor):
                given.append(value)
                continue
            if self.written is None or place in self.written:
                if place not in self._clones:
                    self._clones[place] = _copy(value)
                fresh = self._clones[place].detach()
            else:
                fresh = value.detach()
            given.append(fresh.requires_grad_(value.requires_grad))
        return given

    def let_go(self) -> None:
        """Forget inputs and copies."""
        self.inputs, self.is_open = None, False
        self._clones.clear()

    @property
    def obstacle(self) -> str:
        """Why it cannot be run again, or ""."""
        if self.inputs is None:
            return "it was not called"
        if any(is_traceable_wrapper_subclass(value) for value in self.inputs if isinstance(value, Tensor)):
            return "an input is a wrapper tensor"
        if self.eager_reason:
            return "it runs in eager"
        if any(_communicates(node) for node in self.graph.graph.nodes):
            return "it communicates with other processes"
        return ""

    @contextmanager
    def surroundings(self) -> Iterator[None]:
        """Gradients and autocast as in its call; random numbers and warnings as if nothing ran."""
        devices = sorted({v.device.index or 0 for v in self.inputs or () if isinstance(v, Tensor) and v.is_cuda})
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng(devices))
            stack.enter_context(torch.set_grad_enabled(self.grad_enabled))
            for device, dtype in self.autocast:
                stack.enter_context(torch.autocast(device, dtype))
            yield


def watching(backend: Callable[..., Any], recorder: Recorder) -> Callable[..., Any]:
    """`backend`, whose graphs go into `recorder.watched`."""

    @functools.wraps(backend)
    def compile_watched(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        programs, reasons, written = len(recorder.programs), len(recorder.eager_graphs), len(recorder.written)
        compiled = backend(gm, inputs)
        reason = recorder.eager_graphs[reasons] if len(recorder.eager_graphs) > reasons else ""
        watched = WatchedGraph(
            gm,
            compiled,
            tuple(recorder.programs[programs:]),
            recorder.written[-1] if len(recorder.written) > written else None,
            eager_reason=reason,
            plan=recorder.plans[-1] if len(recorder.written) > written else None,
        )
        recorder.watched.append(watched)

        @contextmanager
        def noted(inputs: tuple[Any, ...]) -> Iterator[None]:
            if watched.is_open:
                _note(watched, inputs)
            yield

        return on_first_call(compiled, noted)

    return compile_watched


def _note(watched: WatchedGraph, inputs: tuple[Any, ...]) -> None:
    watched.inputs = inputs
    watched.grad_enabled = torch.is_grad_enabled()
    watched.autocast = tuple(
        (device, torch.get_autocast_dtype(device)) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
    )


def _copy(value: Tensor) -> Tensor:
    """The same values in the same layout, in memory of its own."""
    with torch.no_grad():
        made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return made.copy_(value.detach())


def _communicates(node: fx.Node) -> bool:
    name = str(node.target)
    return "c10d" in name or "all_reduce" in name or "all_gather" in name or "reduce_scatter" in name
