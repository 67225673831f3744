"""Programs that do several blocks in a row: every point once, whatever decides where a block's loads lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import harness
from test_machine_code import artifact_of

from flambeau_inductor import expr as ex
from flambeau_inductor.codegen.triton import Config, kernel_text
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import KernelBody, Store
from flambeau_inductor.ir.loops import make_axes

F32, BF16 = torch.float32, torch.bfloat16


def looked_up(rows: int, tensors: dict[str, Tensor]) -> KernelBody:
    """Sums with a row, their sines, and their products with rows of a table."""
    axes = make_axes((ex.Int(rows), ex.Int(40)))
    i, j = (axis.symbol for axis in axes)
    found = sc.indirect(sc.load("which", i, torch.int64), ex.Int(6), check=False)
    total = sc.op("add", sc.load("x", i * 40 + j, F32), sc.load("row", j, F32))
    product = sc.op("mul", total, sc.load("table", found * 40 + j, F32))
    stores = [Store("first", i * 40 + j, sc.op("sin", total)), Store("second", i * 40 + j, product)]
    return harness.make_body(tensors, axes, (), stores)


def operands(rows: int) -> dict[str, Tensor]:
    """What that body reads, and where its results go."""
    return {
        "x": torch.randn(rows, 40),
        "row": torch.randn(40),
        "table": torch.randn(6, 40),
        "which": torch.randint(0, 6, (rows,)),
        "first": torch.empty(rows, 40),
        "second": torch.full((rows, 40), float("nan")),
    }


def test_what_other_loads_decide_stays_where_it_is() -> None:
    """Positions and masks move on; the row that an index names is loaded when its turn comes."""
    text = kernel_text(looked_up(17, operands(17)), config=Config({"x": 32}, 1, repeats=2))
    before, _, within = text.source.partition("for block in tl.static_range(2):")
    ahead, _, rest = within.partition("tl.store(")
    loads = {name: f"tl.load({pointer} " for pointer, name in zip(text.signature, text.buffers, strict=True)}
    for name in ("x", "row", "which"):
        assert [part.count(loads[name]) for part in (before, ahead, rest)] == [1, 1, 0], name
    assert [part.count(loads["table"]) for part in (before, ahead + rest)] == [0, 1]
    assert "xmask_next = xi_next < 680" in ahead and "xi = xi_next" in rest


@pytest.mark.parametrize("rows", [8, 12, 17])
@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_every_point_once(rows: int, repeats: int) -> None:
    """Whole blocks and a last program with less to do; a broadcast operand, one that is looked up, and two results."""
    tensors = operands(rows)
    source = harness.run(looked_up(rows, tensors), tensors, config=Config({"x": 32}, 1, repeats=repeats))
    assert f"tl.static_range({repeats})" in source
    total = tensors["x"] + tensors["row"]
    torch.testing.assert_close(tensors["first"], total.sin())
    assert torch.equal(tensors["second"], total * tensors["table"][tensors["which"]])


def busy(x: Tensor) -> Tensor:
    return x.sin() * x.cos() + (-x.abs()).exp() + x.abs().log1p()


CHOICES: list[tuple[Callable[[Tensor], Tensor], tuple[int, ...], torch.dtype, int]] = [
    (busy, (8192, 1024), F32, 4),
    (busy, (8192, 1024), BF16, 2),
    (busy, (64, 1024), F32, 1),
    (busy, (8191, 1023), F32, 1),
    (torch.sin, (8192, 1024), F32, 1),
    (lambda x: busy(x).sum(1), (8192, 1024), F32, 1),
]


@pytest.mark.parametrize(("function", "sizes", "dtype", "expected"), CHOICES)
def test_only_where_arithmetic_takes_as_long_as_memory(
    function: Callable[[Tensor], Tensor], sizes: tuple[int, ...], dtype: torch.dtype, expected: int
) -> None:
    """And where there are enough points in whole vectors, and no rows to reduce."""
    artifact = artifact_of(function, [(sizes, dtype)])
    source = artifact.libraries[artifact.kernels[0].library].source
    assert ("tl.static_range(" in source) == (expected > 1)
    assert expected == 1 or f"tl.static_range({expected})" in source


@pytest.mark.parametrize("in_place", [False, True])
def test_a_kernel_that_overwrites_what_it_reads_is_left_alone(in_place: bool) -> None:
    """The next block would be read before this one is written."""
    x = torch.empty(1 << 23, device="meta")
    (axis,) = make_axes((ex.Int(x.numel()),))
    value = sc.op("sin", sc.op("exp", sc.op("log1p", sc.load("x", axis.symbol, F32))))
    stores = [Store("out", axis.symbol, sc.op("cos", value))]
    body = harness.make_body({"x": x, "out": x}, [axis], (), stores, aliases={"out": "x"} if in_place else None)
    assert (kernel_text(body).config.repeats > 1) == (not in_place)
