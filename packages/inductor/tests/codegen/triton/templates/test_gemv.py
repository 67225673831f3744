"""Products of few rows, and products whose terms are summed in parts, under Triton's interpreter equal eager and compile for GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rounding import with_tf32
from tracing import traced, traced_on_cuda

from flambeau_inductor.autotune.choice import ChooseGemm
from flambeau_inductor.codegen.triton.templates.gemv import FEWEST_ROWS
from flambeau_inductor.ir.kernel import GemmTile
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


@pytest.fixture
def compiled(monkeypatch):
    """``compile_graph`` with one tile for every product."""

    def compile_with(tile, gm, inputs, **options):
        monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
        return compile_graph(gm, inputs, {"gemm": "generated", "verify": True, **options})

    return compile_with


def check(compiled, tile, function, inputs, launches):
    artifact = compiled(tile, traced(function, *inputs), inputs, cpu_backend="triton")
    kinds = [type(step) for step in artifact.program.instructions]
    assert (kinds.count(Launch), kinds.count(Call)) == (launches, 0)
    # Without units for matrices operands have all of their bits.
    expected = function(*inputs) if tile.rows < FEWEST_ROWS else with_tf32(function, *inputs)
    tolerance = 2e-2 if inputs[0].dtype.itemsize == 2 else 1e-4
    for have, want in zip(
        load(artifact)(*inputs), expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
        torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)
        assert have.stride() == want.stride()


def gelu_of_linear(x, w, b):
    return F.gelu(F.linear(x, w, b))


def twice(x, w):
    y = F.linear(x, w)
    return y, y.relu()


@pytest.mark.parametrize("columns", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_few_rows(rows, dtype, columns, compiled):
    tile = GemmTile(1 << (rows - 1).bit_length(), columns, 128, 4, 1)
    inputs = [r(rows, 300, dtype=dtype), r(37, 300, dtype=dtype), r(37, dtype=dtype)]
    check(compiled, tile, gelu_of_linear, inputs, 1)


FEW_ROWS = {
    "the result is needed as well": (twice, r(2, 128), r(40, 128)),
    "batches": (lambda x, w: torch.bmm(x, w.transpose(1, 2)) * 2, r(3, 2, 100), r(3, 37, 100)),
    "a batch that shares": (lambda x, w: torch.bmm(x, w.expand(3, 36, 64).transpose(1, 2)), r(3, 2, 64), r(1, 36, 64)),
    "a window": (lambda x, w: F.linear(x[1:, 5:105], w[2:, 3:103]), r(3, 120), r(37, 110)),
    "the left operand across": (lambda x, w: x.t() @ w.t(), r(64, 2), r(24, 64)),
    "fewer terms than a block": (F.linear, r(1, 5), r(9, 5)),
    "one column": (F.linear, r(2, 64), r(1, 64)),
}


@pytest.mark.parametrize("name", FEW_ROWS)
def test_few_rows_that_lie_otherwise(name, compiled):
    function, *inputs = FEW_ROWS[name]
    check(compiled, GemmTile(2, 8, 64, 4, 1), function, inputs, 1)


def test_no_terms_but_those_that_count_are_multiplied(compiled):
    # Terms beyond the end are zero on both sides: an infinite neighbour must not become NaN.
    whole_x, whole_w = torch.full((2, 128), float("inf")), torch.full((24, 128), float("inf"))
    whole_x[:, :100], whole_w[:, :100] = r(2, 100), r(24, 100)
    check(compiled, GemmTile(2, 8, 64, 4, 1), lambda x, w: F.linear(x[:, :100], w[:, :100]), [whole_x, whole_w], 1)


PARTS = {
    "bias and gelu": (lambda x, w, b: F.gelu(torch.addmm(b, x, w)), r(70, 128), r(128, 36), r(36)),
    "alone": (lambda x, w: x @ w, r(70, 128), r(128, 36)),
    "the result is needed as well": (twice, r(70, 128), r(36, 128)),
    "across": (lambda x, w: x.t() @ w, r(128, 20), r(128, 36)),
    "scaled": (lambda x, w, b: torch.addmm(b, x, w, alpha=0.5, beta=2.0), r(20, 64), r(64, 24), r(20, 24)),
    "in another order": (lambda x, w: F.linear(x, w).view(5, 4, 2, 18).transpose(1, 2).contiguous(), r(20, 64), r(36, 64)),
    "a window": (lambda x, w: F.linear(x[:, 4:68], w[2:, 8:72]).tanh(), r(20, 80), r(36, 80)),
    "half": (lambda x, w, y: (x @ w) * y, *(r(*s, dtype=torch.bfloat16) for s in ((20, 64), (64, 36), (20, 36)))),
}  # fmt: skip


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("fetched", [True, False])
@pytest.mark.parametrize("name", PARTS)
def test_terms_in_parts(name, fetched, parts, compiled):
    function, *inputs = PARTS[name]
    check(compiled, GemmTile(16, 32, 16, 4, 2, parts, fetched), function, inputs, 2)


def test_parts_are_added_before_the_result_is_rounded(compiled):
    # Each part alone is far above 16 bits of the sum.
    x, w = torch.ones(16, 64, dtype=torch.bfloat16), torch.ones(32, 64, dtype=torch.bfloat16)
    x[:, :32], x[:, 32:] = 257.0, -256.0
    check(compiled, GemmTile(16, 32, 16, 4, 2, 2), lambda x, w: F.linear(x, w).relu(), [x, w], 2)


@pytest.mark.parametrize(
    ("rows", "tile"),
    [
        (1, GemmTile(1, 8, 1024, 4, 1)),
        (4, GemmTile(4, 8, 1024, 4, 1)),
        (16, GemmTile(16, 32, 128, 4, 5, fetched=False)),
        (16, GemmTile(16, 64, 128, 4, 4, 4)),
    ],
)
def test_compiles_for_gpus(rows, tile, compiled):
    x, w = (torch.empty(*s, dtype=torch.bfloat16, device="meta") for s in ((rows, 4096), (1024, 4096)))
    artifact = compiled(tile, traced_on_cuda(lambda x, w: F.linear(x, w).relu(), x, w), [x, w])
    first, *after = compile_kernels(kernel_requests(artifact, 90))
    assert len(after) == (tile.parts > 1) and "gemm" in first.name
    # Descriptors need memory of the launch.
    assert (first.global_scratch > 0) is (tile.fetched and tile.rows >= 16)
