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
from flambeau_inductor.codegen.triton.repeated import repeat
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import Store
from flambeau_inductor.ir.loops import make_axes

F32, BF16 = torch.float32, torch.bfloat16


def test_what_other_loads_decide_stays_where_it_is() -> None:
    """Positions and masks move on; the row that an index names is loaded when its turn comes."""
    block = [
        "v1 = tl.load(in0 + (xi // 8), xmask)",
        "v2 = xi % 8",
        "v3 = tl.load(in1 + (v1 * 8 + v2), xmask)",
        "v4 = tl.load(in2 + (v2), xmask)",
        "v5 = (v3 + v4)",
        "tl.store(out0 + (xi), v5, xmask)",
    ]
    assert repeat(["xi = pid * 64 + tl.arange(0, XBLOCK)", "xmask = xi < 100"], block, 2) == [
        "xi = pid * 64 + tl.arange(0, XBLOCK)",
        "xmask = xi < 100",
        "v1 = tl.load(in0 + (xi // 8), xmask)",
        "v2 = xi % 8",
        "v4 = tl.load(in2 + (v2), xmask)",
        "for block in tl.static_range(2):",
        "    if block + 1 < 2:",
        "        xi_next = xi + XBLOCK",
        "        xmask_next = xi_next < 100",
        "        v1_next = tl.load(in0 + (xi_next // 8), xmask_next)",
        "        v2_next = xi_next % 8",
        "        v4_next = tl.load(in2 + (v2_next), xmask_next)",
        "    v3 = tl.load(in1 + (v1 * 8 + v2), xmask)",
        "    v5 = (v3 + v4)",
        "    tl.store(out0 + (xi), v5, xmask)",
        "    if block + 1 < 2:",
        "        xi = xi_next",
        "        xmask = xmask_next",
        "        v1 = v1_next",
        "        v2 = v2_next",
        "        v4 = v4_next",
    ]


@pytest.mark.parametrize("rows", [8, 12, 17])
@pytest.mark.parametrize("repeats", [2, 3, 4])
def test_every_point_once(rows: int, repeats: int) -> None:
    """Whole blocks and a last program with less to do; a broadcast operand, one that is looked up, and two results."""
    x, row, table = torch.randn(rows, 40), torch.randn(40), torch.randn(6, 40)
    which = torch.randint(0, 6, (rows,))
    first, second = torch.empty(rows, 40), torch.full((rows, 40), float("nan"))
    tensors = {"x": x, "row": row, "table": table, "which": which, "first": first, "second": second}
    axes = make_axes((ex.Int(rows), ex.Int(40)))
    i, j = (axis.symbol for axis in axes)
    found = sc.indirect(sc.load("which", i, torch.int64), ex.Int(6), check=False)
    total = sc.op("add", sc.load("x", i * 40 + j, F32), sc.load("row", j, F32))
    looked_up = sc.op("mul", total, sc.load("table", found * 40 + j, F32))
    stores = [Store("first", i * 40 + j, sc.op("sin", total)), Store("second", i * 40 + j, looked_up)]
    source = harness.run(
        harness.make_body(tensors, axes, (), stores), tensors, config=Config({"x": 32}, 1, repeats=repeats)
    )
    assert f"tl.static_range({repeats})" in source
    torch.testing.assert_close(first, (x + row).sin())
    assert torch.equal(second, (x + row) * table[which])


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
