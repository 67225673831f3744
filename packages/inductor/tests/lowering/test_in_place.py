"""Writes at computed positions that go into an input itself, and those that must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from tracing import lowered, traced

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.loops import Extern, Pointwise, Reduction, Scatter
from flambeau_inductor.lowering.run import lower_graph

ROWS = torch.tensor([0, 2, 2])


def operations(function: Callable[..., Any], dtype: torch.dtype = torch.float32) -> list[Any]:
    """The loop IR of a function of a tensor, rows and values."""
    return list(
        lowered(traced(function, torch.ones(4, 3, dtype=dtype), ROWS, torch.ones(3, 3, dtype=dtype))).operations
    )


def write_back(x: Tensor, value: Tensor) -> Tensor:
    return torch.ops.aten.copy_.default(x, value)


def adds(x: Tensor, rows: Tensor, values: Tensor) -> None:
    write_back(x, x.index_add(0, rows, values))


def puts(x: Tensor, rows: Tensor, values: Tensor) -> None:
    write_back(x, torch.index_put(x, [rows], values))


@pytest.mark.parametrize("function", [adds, puts])
def test_nothing_is_copied(function: Callable[..., Any]) -> None:
    """One scatter, over the input, after a look at where it goes."""
    check, found = operations(function)
    assert isinstance(check, Reduction)
    assert check.checks
    assert isinstance(found, Scatter)
    assert found.out.in_place


def test_a_library_call_writes_the_input() -> None:
    """Where the sum is in a narrow type."""
    (found,) = operations(adds, torch.bfloat16)
    assert isinstance(found, Extern)
    assert found.op is torch.ops.aten.index_add_.default
    assert [buffer.storage for buffer in found.changed] == ["x_1"]


CALLS = {
    "index_add": lambda x, rows, values: x.index_add(0, rows, values),
    "index_put": lambda x, rows, values: torch.index_put(x, [rows], values),
    "scatter.src": lambda x, rows, values: x.scatter(0, rows[:, None].expand(3, 3), values),
    "scatter.value": lambda x, rows, values: x.scatter(0, rows[:, None].expand(3, 3), 2.0),
    "scatter_add": lambda x, rows, values: x.scatter_add(0, rows[:, None].expand(3, 3), values),
    "scatter_reduce.two": lambda x, rows, values: x.scatter_reduce(0, rows[:, None].expand(3, 3), values, "amax"),
}


@pytest.mark.parametrize("name", CALLS)
def test_each_library_call_that_changes_a_copy_changes_the_input(name: str) -> None:
    """With kernels switched off all of them are library calls."""
    base, _, overload = name.partition(".")
    gm = traced(lambda *parts: write_back(parts[0], CALLS[name](*parts)), torch.ones(4, 3), ROWS, torch.ones(3, 3))
    values = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    off = CompileContext(CompileContext().config.with_options({"cpp_kernels": False}))
    calls = [op for op in lower_graph(gm, values, off).operations if isinstance(op, Extern)]
    assert [op.op for op in calls] == [getattr(getattr(torch.ops.aten, f"{base}_"), overload or "default")]


def old_is_read(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    changed = x.index_add(0, rows, values)
    total = x.sum()
    write_back(x, changed)
    return total


def new_is_kept(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    changed = x.index_add(0, rows, values)
    write_back(x, changed)
    return changed


def adds_own_rows(x: Tensor, rows: Tensor, values: Tensor) -> None:
    write_back(x, x.index_add(0, rows, x[rows]))


def of_another(x: Tensor, rows: Tensor, values: Tensor) -> None:
    write_back(x, values.new_zeros(4, 3).index_add(0, rows, values))


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        *(
            (function, dtype)
            for function in (old_is_read, new_is_kept, of_another)
            for dtype in (torch.float32, torch.bfloat16)
        ),
        (adds_own_rows, torch.float32),  # a library call gets the rows as they were in any case
    ],
)
def test_where_it_would_show_a_copy_is_taken(function: Callable[..., Any], dtype: torch.dtype) -> None:
    """The old contents are read later, the new ones are a result too, or the sum starts elsewhere."""
    found = operations(function, dtype)
    assert any(isinstance(op, Pointwise) and op.out.in_place for op in found)
    assert not any(isinstance(op, Scatter) and op.out.storage in ("x_1", "x") for op in found)
    assert not any(isinstance(op, Extern) and op.changed for op in found)
