"""Long rows with values of their own are walked row by row on a GPU: the same points, each with the same value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from attrs import evolve
from tracing import lowered, traced, traced_on_cuda

from flambeau_inductor import expr as ex
from flambeau_inductor.expr import Symbol
from flambeau_inductor.ir.graph import Graph
from flambeau_inductor.ir.kernel import KernelBody
from flambeau_inductor.program.memory import share_memory
from flambeau_inductor.schedule import schedule
from flambeau_inductor.schedule.nest import make_nest
from flambeau_inductor.schedule.rows import by_rows

ROWS, LONG = 1024, 8192
MATRIX, COLUMN = torch.empty(ROWS, LONG), torch.empty(ROWS, 1)


def bodies(graph: Graph) -> list[KernelBody]:
    """The kernels of a graph."""
    return [step for step in schedule(graph).steps if isinstance(step, KernelBody)]


def on_cuda(function: Callable[..., object], *inputs: torch.Tensor) -> KernelBody:
    """The only kernel of a function of CUDA tensors."""
    (body,) = bodies(lowered(traced_on_cuda(function, *inputs)))
    return body


def test_values_of_a_row_are_outside_of_its_loop() -> None:
    """The rows are the parallel axis; every result is written inside."""
    body = on_cuda(lambda x, a, b: ((x - a) * b, x * a), MATRIX, COLUMN, COLUMN)
    assert [str(axis.size) for axis in (*body.outer, *body.inner)] == [str(ROWS), str(LONG)] and len(body.outer) == 1
    assert {statement.level for statement in body.statements} == {"inner"}


@pytest.mark.parametrize(
    "inputs",
    [
        (MATRIX, MATRIX, COLUMN),
        (MATRIX, torch.empty(LONG), torch.empty(LONG)),
        (MATRIX, torch.empty(()), torch.empty(())),
    ],
    ids=["one value of a row", "values of columns", "numbers"],
)
def test_without_several_values_of_a_row_the_kernel_is_flat(inputs: tuple[torch.Tensor, ...]) -> None:
    """There is nothing to hold."""
    assert not on_cuda(lambda x, a, b: (x - a) * b, *inputs).inner


@pytest.mark.parametrize("sizes", [(ROWS, LONG // 2), (256, LONG)], ids=["short rows", "few rows"])
def test_short_or_few_rows_stay_flat(sizes: tuple[int, int]) -> None:
    """A program for each would be short, or there would be too few."""
    rows = torch.empty(sizes[0], 1)
    assert not on_cuda(lambda x, a, b: (x - a) * b, torch.empty(sizes), rows, rows).inner


@pytest.mark.parametrize(
    "other",
    [{"index": ex.Int(2) * Symbol("x1", bound=ex.Int(LONG))}, {"mode": "add"}],
    ids=["not in order", "added to what is there"],
)
def test_other_writes_stay_flat(other: dict[str, Any]) -> None:
    """A row of results that are not written next to each other."""
    graph = lowered(traced_on_cuda(lambda x, a, b: (x - a) * b, MATRIX, COLUMN, COLUMN))
    nest = make_nest(0, graph.operations[0])  # type: ignore[arg-type]
    assert by_rows(nest).inner
    assert not by_rows(evolve(nest, statements=tuple(evolve(s, **other) for s in nest.statements))).inner
    assert not by_rows(evolve(nest, serial=True)).inner


def test_kernels_of_the_cpu_are_as_before() -> None:
    """There the loop over a row is the inner one in any case."""
    (body,) = bodies(lowered(traced(lambda x, a, b: (x - a) * b, MATRIX, COLUMN, COLUMN)))
    assert not body.inner


def test_a_row_may_be_written_over_what_it_was_computed_from() -> None:
    """Each point is come to once, by the thread that reads it."""

    def function(x: torch.Tensor, w: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.mm(x, w) - a) * b

    graph = lowered(traced_on_cuda(function, torch.empty(ROWS, 16), torch.empty(16, LONG), COLUMN, COLUMN))
    shared = share_memory(graph, schedule(graph))
    (body,) = (step for step in shared.steps if isinstance(step, KernelBody))
    (out,) = (buffer for buffer in body.buffers if buffer.name == body.statements[0].buffer)  # type: ignore[union-attr]
    assert body.inner and out.storage != out.name
