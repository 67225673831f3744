"""Products that compute their right operand where they read it: equal to eager, with fewer kernels, and only where nothing else needs the operand."""

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
from flambeau_runtime.artifact import Call
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests

FEW, UNITS, PARTS = GemmTile(4, 8, 32, 4, 1), GemmTile(16, 32, 32, 4, 2), GemmTile(16, 32, 16, 4, 2, 2)
bf16 = torch.bfloat16


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


def int8(*sizes):
    return torch.randint(-127, 128, sizes, dtype=torch.int8)


@pytest.fixture
def launches(monkeypatch):
    """How many kernels a function has in a tile, after its results were compared with eager's."""

    def count(tile, function, *inputs):
        monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
        options = {"cpu_backend": "triton", "gemm": "generated", "verify": True}
        artifact = compile_graph(traced(function, *inputs), list(inputs), options)
        expected = function(*inputs) if tile.rows < FEWEST_ROWS else with_tf32(function, *inputs)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for have, want in zip(load(artifact)(*inputs), expected, strict=True):
            tolerance = 1e-4 if want.dtype is torch.float32 else 2e-2
            torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)
        assert not any(isinstance(step, Call) for step in artifact.program.instructions)
        return len(artifact.kernels)

    return count


def scaled_weights(x, w, s):
    return F.linear(x, w.to(x.dtype) * s.unsqueeze(1)).relu()


CASES = {
    "int8 with scaled results": (
        lambda x, w, s: F.linear(x, w.to(x.dtype)) * s, r(3, 300, dtype=bf16), int8(37, 300), r(37, dtype=bf16)
    ),
    "int8 that is scaled": (scaled_weights, r(3, 128, dtype=bf16), int8(40, 128), r(40, dtype=bf16)),
    "float32": (lambda x, w: F.linear(x, w.to(x.dtype)), r(3, 100, dtype=bf16), r(37, 100)),
    "a window": (lambda x, w: F.linear(x, (w.to(x.dtype) * 2)[2:, 4:]), r(3, 96, dtype=bf16), int8(39, 100)),
    "batches": (lambda x, w: torch.bmm(x, (w.float() * 0.5).transpose(1, 2)), r(3, 2, 100), int8(3, 37, 100)),
    "infinite where there is nothing": (lambda x, w: F.linear(x, 1 / w), r(3, 100), r(37, 100)),
}  # fmt: skip


@pytest.mark.parametrize("tile", [FEW, UNITS], ids=["few rows", "units for matrices"])
@pytest.mark.parametrize("name", CASES)
def test_the_operand_is_not_stored(name, tile, launches):
    function, *inputs = CASES[name]
    assert launches(tile, function, *inputs) == 1


def test_terms_in_parts(launches):
    assert launches(PARTS, scaled_weights, r(3, 128, dtype=bf16), int8(40, 128), r(40, dtype=bf16)) == 2


def test_rows_of_weights_that_run_along_columns(launches):
    assert launches(UNITS, lambda x, w: x @ w.to(x.dtype), r(3, 100, dtype=bf16), int8(100, 37)) == 1


def test_the_operand_is_rounded_as_when_it_was_stored(launches):
    # 1 + 2 ** -9 is 1 in bfloat16: each of 256 terms would add its part.
    x, w = torch.ones(1, 256, dtype=bf16), torch.full((8, 256), 1 + 2**-9)
    assert launches(FEW, lambda x, w: F.linear(x, w.to(bf16)).float() - 256, x, w) == 1


KEPT = {
    "it leaves": lambda x, w: (lambda v: (v, F.linear(x, v)))(w * 2),
    "another reads it": lambda x, w: (lambda v: F.linear(x, v) + v.sum())(w * 2),
    "a reduction makes it": lambda x, w: F.linear(x, w.softmax(-1)),
    "it costs much": lambda x, w: F.linear(x, w.exp().sin().exp().sin()),
    "its places are looked up": lambda x, w: F.linear(x, w[torch.arange(37) % 5]),
    "its source turns round": lambda x, w: F.linear(x, torch.roll(w, 3, 1)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays_in_memory(name, launches):
    assert launches(FEW, KEPT[name], r(3, 64), r(37, 64)) > 1


def test_many_rows_would_compute_it_many_times(launches):
    def converted(x, w):
        return F.linear(x, w.to(x.dtype))

    assert launches(GemmTile(64, 32, 32, 4, 2), converted, r(256, 64), int8(32, 64) // 64) == 1
    assert launches(GemmTile(64, 32, 32, 4, 2), converted, r(257, 64), int8(32, 64) // 64) == 2


@pytest.mark.parametrize(
    ("rows", "tile"), [(1, GemmTile(1, 4, 2048, 4, 1)), (16, GemmTile(16, 64, 128, 4, 3, fetched=False))]
)
def test_compiles_for_gpus(rows, tile, monkeypatch):
    monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
    inputs = [
        torch.empty(*sizes, dtype=dtype, device="meta")
        for sizes, dtype in (((rows, 4096), bf16), ((4096, 4096), torch.int8), ((4096,), bf16))
    ]
    artifact = compile_graph(traced_on_cuda(scaled_weights, *inputs), inputs, {"gemm": "generated", "verify": True})
    (cubin,) = compile_kernels(kernel_requests(artifact, 90))
    assert "gemm" in cubin.name


def test_without_measurement_where_memory_decides():
    def kernels(rows):
        inputs = [
            torch.empty(*sizes, dtype=dtype, device="meta")
            for sizes, dtype in (((rows, 4096), bf16), ((4096, 4096), torch.int8), ((4096,), bf16))
        ]
        return [k.entry for k in compile_graph(traced_on_cuda(scaled_weights, *inputs), inputs).kernels]

    assert len(kernels(1)) == 1 and "gemm" in kernels(1)[0]
    assert "gemm" in kernels(64)[0]
    assert not any("gemm" in name for name in kernels(65))


def test_a_step_of_few_rows_reads_as_many_bytes_of_the_weight_as_any():
    inputs = [
        torch.empty(*sizes, dtype=dtype, device="meta")
        for sizes, dtype in (((64, 4096), bf16), ((14336, 4096), torch.int8), ((14336,), bf16))
    ]
    (kernel,) = compile_graph(traced_on_cuda(scaled_weights, *inputs), inputs).kernels
    assert kernel.meta["constexprs"]["KBLOCK"] == 128
