"""Reductions with few results are split for every core, whatever they reduce with, and come to the same."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
import torch
from tracing import lowered, traced

from flambeau_inductor.devices.cpu import ENOUGH_WORK
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.loops import Reduction
from flambeau_inductor.schedule.split import split_reduction

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(),
    "prod": lambda x: x.prod(),
    "max": lambda x: x.amax(),
    "min": lambda x: x.amin(),
    "any": lambda x: (x > 1).any(),
    "all": lambda x: (x < 1).all(),
}


@pytest.mark.parametrize("kind", list(REDUCTIONS))
@pytest.mark.parametrize("size", [ENOUGH_WORK, ENOUGH_WORK + 7], ids=["in equal parts", "with a shorter part"])
def test_partial_results_come_to_the_same(kind: str, size: int) -> None:
    """Two reductions, the first with a result for each part."""
    x = torch.linspace(-1.0, -0.999, size)
    graph = lowered(traced(REDUCTIONS[kind], x))
    (whole,) = (operation for operation in graph.operations if isinstance(operation, Reduction))
    assert whole.kind == kind
    halves = split_reduction(whole, lambda: "partial")
    assert halves is not None
    partial = halves[0].out
    operations = (part for operation in graph.operations for part in (halves if operation is whole else (operation,)))
    split = attrs.evolve(graph, operations=tuple(operations), buffers={**graph.buffers, partial.name: partial})
    torch.testing.assert_close(run_graph(split, [x])[0], REDUCTIONS[kind](x))
