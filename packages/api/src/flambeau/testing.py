"""Helpers for tests of programs that compile: backends that count, or keep, what they are given.

In: captured graphs. Out: counts and graphs to assert on, under the names of `torch._dynamo.testing`.

Example:
    >>> counter = flambeau.testing.CompileCounter()
    >>> flambeau.compile(step, backend=counter)(x)
    >>> assert counter.frame_count == 1
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .backends import Backend, aot_autograd, lookup_backend

CompiledFn = Callable[..., Any]

__all__ = ["AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounter:
    """Runs captured graphs with torch's own ops, and counts.

    Attributes:
        frame_count: graphs that were captured.
        op_count: calls in them.
    """

    def __init__(self) -> None:
        self.frame_count = 0
        self.op_count = 0

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFn:
        self._count(gm)
        forward: CompiledFn = gm.forward
        return forward

    def _count(self, gm: torch.fx.GraphModule) -> None:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)

    def clear(self) -> None:
        """Count from 0 again."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend(CompileCounter):
    """Counts, keeps the graphs, and has another backend compile them.

    Args:
        backend: a name or a callable, as for `flambeau.compile`.

    Attributes:
        frame_count, op_count: as of `CompileCounter`.
        graphs: the captured graphs in order.
    """

    def __init__(self, backend: str | Backend) -> None:
        super().__init__()
        self.backend = lookup_backend(backend)
        self.graphs: list[torch.fx.GraphModule] = []
        self.wants_real_inputs = getattr(self.backend, "wants_real_inputs", True)

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFn:
        self._count(gm)
        self.graphs.append(gm)
        return self.backend(gm, example_inputs)

    def clear(self) -> None:
        """Count from 0 again, and let the graphs go."""
        super().clear()
        self.graphs = []


class EagerAndRecordGraphs:
    """Runs captured graphs with torch's own ops, and keeps them.

    Attributes:
        graphs: the captured graphs in order.
    """

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFn:
        self.graphs.append(gm)
        forward: CompiledFn = gm.forward
        return forward


class AotEagerAndRecordGraphs:
    """Takes captured graphs through ahead-of-time autograd, runs the results with torch's own ops, and keeps all of them.

    Attributes:
        graphs: the captured graphs in order.
        fw_graphs, bw_graphs: their forward and backward ATen graphs; a backward is there once it has run.
    """

    wants_real_inputs = False

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []
        self.fw_graphs: list[torch.fx.GraphModule] = []
        self.bw_graphs: list[torch.fx.GraphModule] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFn:
        self.graphs.append(gm)
        return aot_autograd(fw_compiler=self._keeps(self.fw_graphs), bw_compiler=self._keeps(self.bw_graphs))(
            gm, example_inputs
        )

    def _keeps(self, kept: list[torch.fx.GraphModule]) -> Backend:
        def compiler(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> CompiledFn:
            kept.append(gm)
            forward: CompiledFn = gm.forward
            return forward

        return compiler
