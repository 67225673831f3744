"""Products whose number of rows is known at run time only equal eager for any number, and are left to the library where that is fast."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from rounding import with_tf32
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from tracing import TABLE

from flambeau_inductor.autotune.choice import ChooseGemm
from flambeau_inductor.ir.kernel import GemmTile
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests


def traced(function, *inputs, open_dims=1, device=None) -> tuple[fx.GraphModule, list]:
    """A graph in which the first ``open_dims`` sizes of the first input are symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv())

    def fake(tensor, count):
        kinds = [DimDynamic.DYNAMIC if dim < count else DimDynamic.STATIC for dim in range(tensor.dim())]
        found = mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(kinds))
        if device is None:
            return found
        with mode:
            return torch.empty_strided(found.size(), found.stride(), dtype=found.dtype, device=device)

    fakes = [fake(tensor, 0 if number else open_dims) for number, tensor in enumerate(inputs)]
    with mode:
        gm = make_fx(function, decomposition_table=TABLE, _allow_non_fake_inputs=True)(*fakes)
    return gm, [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


CASES = {
    "alone": (lambda x, w: x @ w, 1, lambda n: [r(n, 48), r(48, 36)]),
    "bias and gelu": (lambda x, w, b: F.gelu(torch.addmm(b, x, w)), 1, lambda n: [r(n, 48), r(48, 36), r(36)]),
    "two open sizes": (lambda x, w, b: F.linear(x, w, b).relu(), 2, lambda n: [r(n, 5, 48), r(33, 48), r(33)]),
    "an open and a known size": (lambda x, w: F.linear(x, w).relu(), 1, lambda n: [r(n, 6, 48), r(33, 48)]),
    "a row for each": (lambda x, w, y: F.linear(x, w) * y, 1, lambda n: [r(n, 3, 48), r(33, 48), r(3, 1)]),
    "the result is needed": (lambda x, w: (lambda y: (y, y.tanh()))(x @ w), 1, lambda n: [r(n, 48), r(48, 40)]),
    "odd strides": (lambda x, w: (x @ w).relu(), 1, lambda n: [r(n, 53), r(53, 29)]),
    "wide": (lambda x, w: (x @ w).sigmoid(), 1, lambda n: [r(n, 32), r(32, 300)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_equals_eager_for_any_number_of_rows(name, monkeypatch):
    function, dims, make = CASES[name]
    tile = GemmTile(16, 256 if name == "wide" else 32, 16, 4, 2)
    monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
    gm, fakes = traced(function, *make(20), open_dims=dims)
    artifact = compile_graph(gm, fakes, {"cpu_backend": "triton", "gemm": "generated", "verify": True})
    assert len(artifact.kernels) == 1 and "gemm" in artifact.kernels[0].entry
    program = load(artifact)
    for rows in (2, 16, 37, 150, 0):
        inputs = make(rows)
        expected = with_tf32(function, *inputs)
        given = [*inputs, *inputs[0].shape[:dims]] if len(artifact.program.inputs) > len(inputs) else inputs
        for have, want in zip(program(*given), expected if isinstance(expected, tuple) else (expected,), strict=True):
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)
            assert have.stride() == want.stride() or not rows


def meta(*sizes):
    return torch.empty(*sizes, dtype=torch.bfloat16, device="meta")


@pytest.mark.parametrize(("columns", "count"), [(50257, 1), (50304, 0)])
def test_a_kernel_where_the_library_is_slow(columns, count):
    gm, fakes = traced(lambda x, w: F.linear(x, w).relu(), meta(4096, 768), meta(columns, 768), device="cuda")
    artifact = compile_graph(gm, fakes)
    assert sum("gemm" in kernel.entry for kernel in artifact.kernels) == count
    if count:
        requests = kernel_requests(artifact, 90)
        for request in (requests[0], requests[0].without_promises()):
            assert "gemm" in compile_kernels([request])[0].name


def test_other_open_sizes_stay_with_the_library():
    for function, make in (
        (lambda w, x: x @ w.t(), lambda: [r(36, 48), r(20, 48)]),
        (lambda x, w: torch.bmm(x, w.expand(x.shape[0], 48, 36)), lambda: [r(3, 20, 48), r(1, 48, 36)]),
    ):
        gm, fakes = traced(function, *make())
        artifact = compile_graph(gm, fakes, {"cpu_backend": "triton", "gemm": "generated"})
        assert not any("gemm" in kernel.entry for kernel in artifact.kernels)
