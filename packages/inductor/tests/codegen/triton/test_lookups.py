"""Kernels that take a table in two halves: every row once, and only where a table is read again but does not stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

import harness
import test_graphs
from test_machine_code import artifact_of

from flambeau_inductor import expr as ex
from flambeau_inductor.codegen.tiling import Space
from flambeau_inductor.codegen.triton import Config, kernel_text, options
from flambeau_inductor.devices import Facts
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import Reduce, Store
from flambeau_inductor.ir.loops import make_axes

F32, BF16, I32, I64 = torch.float32, torch.bfloat16, torch.int32, torch.int64


def _norm(rows: Tensor) -> Tensor:
    return F.layer_norm(rows, rows.shape[-1:])


FUNCTIONS: dict[str, Callable[..., object]] = {
    "tokens": lambda ids, table, other: _norm(F.embedding(ids, table)),
    "negative": lambda ids, table, other: _norm(table[ids - 5]),
    "two tables": lambda ids, table, other: _norm(F.embedding(ids % 7, other) + F.embedding(ids, table)),
    "beside rows in order": lambda ids, table, other: _norm(F.embedding(ids, table) * other[: ids.shape[-1]]),
    "two results": lambda ids, table, other: (
        _norm(F.embedding(ids, table)),
        F.embedding(ids, table).sum(-1),
        ids + 1,
    ),
    "sums at other places": lambda ids, table, other: torch.index_put(
        other, (ids.flatten() % 7,), _norm(table[ids.flatten()]), accumulate=True
    ),
}


@pytest.fixture
def in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kernel that looks up rows takes its table in halves."""

    def choose(space: Space, traffic: options.Traffic, device: Facts) -> Config:
        if traffic.lookup is None:
            return chosen(space, traffic, device)
        return Config({"x": 2, "r": 64}, 1, persistent=True, halves=True)

    chosen = options.choose
    monkeypatch.setattr(options, "choose", choose)


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(1, 3), (3, 5), (4, 6)])
@pytest.mark.parametrize("dtype", [I32, I64])
@pytest.mark.parametrize("rows", [9, 10])
def test_every_row_once(name: str, shape: tuple[int, int], dtype: torch.dtype, rows: int) -> None:
    """Rows of both halves, of one half alone, a table of an odd size, a last block with a row too few."""
    ids = torch.randint(0, rows, shape, dtype=dtype)
    table, other = torch.randn(rows, 50), torch.randn(7, 50)
    artifact = test_graphs.check(FUNCTIONS[name], ids, table, other, tolerance=2e-5)
    assert "half = pid // xtiles" in artifact.libraries[0].source


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("positions", [4, 7])
def test_sizes_that_change(positions: int) -> None:
    """The rounds follow a number of rows that the call tells."""
    ids, table = torch.randint(0, 9, (3, positions)), torch.randn(9, 50)
    artifact = test_graphs.check(FUNCTIONS["tokens"], ids, table, table, dynamic=True, tolerance=2e-5)
    assert "xnumel" in artifact.libraries[0].source


@pytest.mark.usefixtures("in_halves")
@pytest.mark.parametrize("wrong", [9, -1])
def test_a_number_outside_of_both_halves(wrong: int) -> None:
    """It raises, whichever half it would be counted to."""
    ids, table = torch.tensor([[0, 8, wrong]]), torch.randn(9, 50)
    run, _ = test_graphs.compiled(FUNCTIONS["tokens"], [ids, table, table])
    with pytest.raises(IndexError, match="out of range"):
        run(ids, table, table)


@pytest.mark.parametrize(
    ("tokens", "rows", "width", "dtype", "halves"),
    [
        pytest.param(65536, 10000, 512, F32, True, id="large table, read often"),
        pytest.param(131072, 20000, 256, F32, True, id="short rows, four a program"),
        pytest.param(65536, 7000, 512, F32, False, id="the table stays in the cache"),
        pytest.param(32768, 50000, 512, F32, False, id="most rows are read once"),
        pytest.param(131072, 20000, 512, BF16, False, id="programs that do little"),
        pytest.param(4096, 10000, 512, F32, False, id="the results stay in the cache too"),
    ],
)
def test_where_halves_gain(tokens: int, rows: int, width: int, dtype: torch.dtype, halves: bool) -> None:
    """By the H200's facts: its cache, and what a program more costs."""
    artifact = artifact_of(
        lambda ids, table: _norm(F.embedding(ids, table)), [((tokens,), I64), ((rows, width), dtype)]
    )
    (kernel,) = artifact.kernels
    assert ("half = pid // xtiles" in artifact.libraries[kernel.library].source) == halves


def test_what_a_condition_hides_is_not_looked_up_in_halves() -> None:
    """Where a concatenation takes another operand, an index may name no row."""

    def function(ids: Tensor, table: Tensor, first: Tensor) -> Tensor:
        return _norm(torch.cat([first, F.embedding(ids, table)]))

    artifact = artifact_of(function, [((65536,), I64), ((10000, 512), F32), ((128, 512), F32)])
    assert all("half = pid" not in library.source for library in artifact.libraries)


@pytest.mark.parametrize("taken", [False, True])
def test_numbers_whose_memory_a_result_takes(taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second round would read what the first one wrote there."""
    tensors = {
        "ids": torch.zeros(8, dtype=I64),
        "table": torch.zeros(6, 32),
        "sums": torch.zeros(8),
        "next": torch.zeros(8, dtype=I64),
    }
    (row,), (column,) = make_axes((ex.Int(8),)), make_axes((ex.Int(32),))
    ids = sc.load("ids", row.symbol, I64)
    place = sc.indirect(ids, ex.Int(6)) * 32 + column.symbol
    statements = [
        Reduce("total", "sum", sc.load("table", place, F32), F32),
        Store("sums", row.symbol, sc.reduced("total", F32), level="outer"),
        Store("next", row.symbol, sc.op("add", ids, sc.constant(1, I64)), level="outer"),
    ]
    body = harness.make_body(tensors, [row], [column], statements, aliases={"next": "ids"} if taken else None)
    found = []
    monkeypatch.setattr(
        options,
        "choose",
        lambda space, traffic, device: found.append(traffic.lookup) or Config({"x": 2, "r": 32}, 1, persistent=True),
    )
    kernel_text(body)
    assert [lookup is None for lookup in found] == [taken]
