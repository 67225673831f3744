"""Kernels say which nodes of the graph they compute: all of them, and no other."""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from golden.programs import PROGRAMS
from tracing import lowered, traced

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.passes.order import OPENING, PASSES
from flambeau_inductor.passes.runner import run_passes
from flambeau_inductor.pipeline import compile_loops

X, W = torch.randn(6, 8), torch.randn(8, 5)


def origins(function: Callable[..., Any], *inputs: torch.Tensor) -> list[set[str]]:
    """Those of each kernel, in the order of the program."""
    return [
        set(kernel.meta["origins"]) for kernel in compile_loops(lowered(traced(function, *inputs))).artifact.kernels
    ]


def test_what_is_computed_where_it_is_read() -> None:
    """A chain, of which one node is a view, is one kernel's; what lies in memory was computed by another."""
    found = origins(lambda x, w: (x.exp() * 2 @ w).t().relu().sum(0), X, W)
    assert found == [{"exp", "mul"}, {"relu", "sum_1"}]


def test_a_value_that_two_kernels_compute() -> None:
    """It is named by both; a part of a result is named by its call."""
    found = origins(lambda x: (x.exp().sum(0), F.layer_norm(x.exp() * 3, (8,)).sum(1)), X)
    assert {"exp", "sum_1"} <= set().union(*found)
    assert any({"exp_1", "mul", "native_layer_norm", "sum_2"} <= names for names in found)
    assert not any("getitem" in name for names in found for name in names)


@pytest.mark.parametrize("name", sorted(name for name in PROGRAMS if "_cpu" in name and name != "loop_cpu"))
def test_every_node_has_its_kernel_or_call(name: str) -> None:
    """Of nodes that compute: a view of memory has neither."""
    gm, inputs = PROGRAMS[name]()
    context = CompileContext()
    gm = run_passes(run_passes(gm, OPENING, context), PASSES, context)
    graph = lower_graph(gm, inputs, context)
    named = {origin for kernel in compile_loops(graph).artifact.kernels for origin in kernel.meta["origins"]}
    named |= {origin for op in graph.operations if isinstance(op, Extern) for origin in op.origins}
    computing = [node for node in gm.graph.nodes if node.op == "call_function" and node.target is not getitem]
    assert {node.name for node in computing if not _is_free(node)} <= named


def _is_free(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    is_number = not isinstance(node.meta["val"], torch.Tensor | tuple | list)
    return schema is None or is_number or any(result.alias_info is not None for result in schema.returns)
