"""Grouped products under Triton's interpreter equal eager, whatever groups have no rows or all of them, and compile for GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve

pytest.importorskip("triton")

from rounding import with_tf32
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from tracing import traced, traced_on_cuda

from flambeau_inductor.devices import H200
from flambeau_inductor.ops.grouped import GROUPED
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.triton_kernels import ALIGNED, compile_kernels, kernel_requests

GENERATED = {"cpu_backend": "triton", "gemm": "generated"}
#: Ends of groups among 70 rows: uneven ones and empty ones, all rows in one, rows behind all groups.
OFFSETS = {"uneven": [0, 5, 5, 69, 70], "one has all": [0, 0, 70, 70, 70], "rows behind": [3, 20, 20, 33, 40]}


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


def gated(x, w, offsets):
    gate, up = torch._grouped_mm(x, w.transpose(1, 2), offs=offsets).chunk(2, dim=-1)
    return F.silu(gate) * up


def apart(x, w, offsets):
    """Matrices that lie apart, in our own operator: the sums come in float32."""
    gate, up = GROUPED(x, [m.t() for m in w.unbind(0)], offsets, False).to(x.dtype).chunk(2, dim=-1)
    return F.silu(gate) * up


CASES = {
    "alone": (lambda x, w, offsets: torch._grouped_mm(x, w, offs=offsets), r(70, 48), r(5, 48, 40)),
    "by terms": (lambda x, w, o: torch._grouped_mm(x, w.transpose(1, 2), offs=o) * 2, r(70, 48), r(5, 36, 48)),
    "gated": (gated, r(70, 40), r(5, 72, 40)),
    "gated half": (gated, r(70, 48, dtype=torch.bfloat16), r(5, 48, 48, dtype=torch.bfloat16)),
    "apart": (apart, r(70, 48, dtype=torch.bfloat16), r(5, 48, 48, dtype=torch.bfloat16)),
    "half": (
        lambda x, w, o: torch._grouped_mm(x, w, offs=o).relu(),
        r(70, 24, dtype=torch.float16),
        r(5, 24, 16, dtype=torch.float16),
    ),
}  # fmt: skip


class _Fakes(fx.Interpreter):
    """Puts a fake of each result into the graph: torch's fakes know grouped products of bfloat16 only."""

    def run_node(self, n):
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            n.meta["val"] = self.mode.from_tensor(result)
        return result


def traced_for_real(function, *inputs):
    gm = traced(function, *inputs, mode="real")
    fakes = _Fakes(gm)
    fakes.mode = FakeTensorMode()
    fakes.run(*inputs)
    return gm


def run(gm, inputs, aligned=True):
    artifact = compile_graph(gm, inputs, GENERATED)
    kinds = [type(step) for step in artifact.program.instructions]
    assert (kinds.count(Launch), kinds.count(Call)) == (1, 0)
    kernels = [
        evolve(k, meta={**k.meta, "constexprs": {**k.meta["constexprs"], ALIGNED: aligned}}) for k in artifact.kernels
    ]
    return load(evolve(artifact, kernels=tuple(kernels)))(*inputs)[0]


@pytest.mark.parametrize(
    ("offsets", "aligned"), [("uneven", True), ("one has all", False), ("rows behind", True), ("rows behind", False)]
)
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, offsets, aligned):
    function, x, w = CASES[name]
    inputs = [x, w, torch.tensor(OFFSETS[offsets], dtype=torch.int32)]
    found, expected = run(traced_for_real(function, *inputs), inputs, aligned), with_tf32(function, *inputs)
    end, tolerance = OFFSETS[offsets][-1], 1e-4 if x.dtype is torch.float32 else 2e-2
    torch.testing.assert_close(found[:end], expected[:end], rtol=tolerance, atol=tolerance)
    # Eager leaves these as they were.
    assert not found[end:].any()


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles_for_gpus(arch, aligned):
    x, w, o = torch.empty(512, 256).bfloat16(), torch.empty(4, 768, 256).bfloat16(), torch.empty(4, dtype=torch.int32)
    gm = traced_on_cuda(gated, x, w, o)
    artifact = compile_graph(gm, [x, w, o], {"gemm": "generated"})
    requests = kernel_requests(artifact, arch)
    (cubin,) = compile_kernels([r if aligned else r.without_promises() for r in requests])
    assert "gemm" in cubin.name and cubin.shared <= H200.shared


def test_terms_are_read_ahead_whatever_follows():
    """An epilogue that looks up each row's bias, too."""

    def function(x, w, offsets, table, number):
        return GROUPED(x, [w], offsets, False) + torch.ops.aten._unsafe_index.Tensor(table, [number])

    x, w, offsets = torch.empty(512, 512).bfloat16(), torch.empty(4, 512, 512).bfloat16(), torch.empty(4).int()
    inputs = [x, w, offsets, torch.empty(4, 512), torch.empty(512).long()]
    artifact = compile_graph(traced_on_cuda(function, *inputs), inputs, {"gemm": "generated"})
    (cubin,) = compile_kernels(kernel_requests(artifact, 90))
    block = artifact.kernels[0].meta["constexprs"]["YBLOCK"] * artifact.kernels[0].meta["constexprs"]["KBLOCK"]
    # Blocks of both operands in at least two stages: of the right one as many bytes as of the left one at least.
    assert cubin.shared >= 2 * 2 * 2 * block
