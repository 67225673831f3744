"""Products with epilogues under Triton's interpreter equal eager, with blocks that are fetched and by address, and compile for GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve

pytest.importorskip("triton")

from rounding import with_tf32
from tracing import traced, traced_on_cuda

from flambeau_inductor.autotune.choice import ChooseGemm
from flambeau_inductor.codegen.triton.templates import gemm
from flambeau_inductor.codegen.triton.templates.gemm import Side, resident, shared_bytes
from flambeau_inductor.devices import H200
from flambeau_inductor.ir.kernel import GemmTile
from flambeau_inductor.ir.layout import Ref
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.triton_kernels import ALIGNED, compile_kernels, kernel_requests

GENERATED = {"cpu_backend": "triton", "gemm": "generated"}


def r(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype)


def split_heads(x, w, b):
    return F.linear(x, w, b).view(2, 35, 2, 18).transpose(1, 2).contiguous()


def eighths(*sizes):
    return r(*sizes).to(torch.float8_e4m3fn)


def scaled(x, w, one, other, b=None):
    return torch._scaled_mm(x, w.t(), one, other, bias=b, out_dtype=torch.bfloat16)


CASES = {
    "bias and gelu": (lambda x, w, b: F.gelu(torch.addmm(b, x, w)), r(70, 48), r(48, 36), r(36)),
    "alone": (lambda x, w: x @ w, r(70, 48), r(48, 36)),
    "the right operand by terms": (lambda x, w: x @ w.t() + 1, r(70, 48), r(33, 48)),
    "the left operand across": (lambda x, w: (x.t() @ w).relu(), r(48, 70), r(48, 36)),
    "batches": (lambda x, w: torch.bmm(x, w).tanh(), r(3, 40, 20), r(3, 20, 50)),
    "a batch that shares": (lambda x, w: torch.bmm(x, w.expand(3, 20, 48)) * 2, r(3, 40, 20), r(1, 20, 48)),
    "odd strides": (lambda x, w: x @ w, r(37, 53), r(53, 29)),
    "scaled": (lambda x, w, b: torch.addmm(b, x, w, alpha=0.5, beta=2.0), r(20, 16), r(16, 24), r(20, 24)),
    "a batch that is added to": (torch.baddbmm, r(2, 1, 24), r(2, 20, 16), r(2, 16, 24)),
    "the result is needed as well": (lambda x, w: (lambda y: (y, y.relu()))(x @ w), r(70, 48), r(48, 36)),
    "results in another order": (split_heads, r(2, 35, 48), r(36, 48), r(36)),
    "a residual": (lambda x, w, y: x @ w + y, r(70, 48), r(48, 36), r(70, 36)),
    "a row for each batch": (lambda x, w, y: torch.bmm(x, w) * y, r(3, 17, 16), r(3, 16, 33), r(3, 1, 1)),
    "scaled eighths": (lambda x, w, s, t, b: F.gelu(scaled(x, w, s, t, b)), eighths(33, 96), eighths(48, 96), r(1).abs()[0], r(1), r(48, dtype=torch.bfloat16)),
    "eighths with a scale for each row and column": (lambda x, w, s, t: scaled(x, w, s, t), eighths(33, 64), eighths(48, 64), r(33, 1), r(1, 48)),
    "a result of 8 bits": (lambda x, w: ((x @ w) * 3).to(torch.float8_e4m3fn), r(33, 64), r(64, 48)),
    "whole numbers of 8 bits": (lambda x, w: (x @ w * 3).round().clamp(-128, 127).to(torch.int8), r(33, 64).round(), r(64, 48).round()),
    "wide": (lambda x, w: (x @ w).sigmoid(), r(130, 32), r(32, 300)),
    "half": (lambda x, w, y: (x @ w) * y, *(r(*s, dtype=torch.bfloat16) for s in ((70, 48), (48, 36), (70, 36)))),
}  # fmt: skip


def run(gm, inputs, aligned=True):
    artifact = compile_graph(gm, inputs, GENERATED)
    kinds = [type(step) for step in artifact.program.instructions]
    assert (kinds.count(Launch), kinds.count(Call)) == (1, 0)
    kernels = [
        evolve(k, meta={**k.meta, "constexprs": {**k.meta["constexprs"], ALIGNED: aligned}}) for k in artifact.kernels
    ]
    found = load(evolve(artifact, kernels=tuple(kernels)))(*inputs)
    return list(found)


@pytest.mark.parametrize("aligned", [True, False], ids=["fetched", "by address"])
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, aligned):
    function, *inputs = CASES[name]
    found = run(traced(function, *inputs), inputs, aligned)
    expected = with_tf32(function, *inputs)
    tolerance = 2e-2 if inputs[0].dtype.itemsize < 4 else 1e-4
    for have, want in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        rounding = 0.13 if have.dtype.itemsize == 1 else tolerance
        torch.testing.assert_close(have.float(), want.float(), rtol=rounding, atol=tolerance)
        assert have.dtype is want.dtype


def test_sums_of_eighths_are_promoted_unless_asked_otherwise():
    given = [torch.empty(s, dtype=torch.float8_e4m3fn, device="meta") for s in ((512, 256), (384, 256))]
    given += [torch.empty((), device="meta")] * 2

    def kernel(fast):
        gm = traced_on_cuda(
            lambda x, w, s, t: torch._scaled_mm(x, w.t(), s, t, out_dtype=torch.bfloat16, use_fast_accum=fast), *given
        )
        return compile_graph(gm, given, {"gemm": "generated"})

    assert "max_num_imprecise_acc=128" in kernel(False).libraries[0].source
    assert "imprecise" not in kernel(True).libraries[0].source
    assert compile_kernels(kernel_requests(kernel(False), 90))[0].shared <= H200.shared


def test_a_result_of_16_bits_is_rounded_before_what_follows():
    inputs = [r(32, 64, dtype=torch.bfloat16), r(64, 32, dtype=torch.bfloat16)]
    (found,) = run(traced(lambda x, w: (x @ w).float() * 3, *inputs), inputs)
    assert torch.equal(found, (found / 3).bfloat16().float() * 3)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("arch", [80, 90])
def test_compiles_for_gpus(arch, aligned):
    x, w, b = (torch.empty(*s, dtype=torch.bfloat16, device="meta") for s in ((512, 256), (384, 256), (384,)))
    gm = traced_on_cuda(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b)
    artifact = compile_graph(gm, [x, w, b], {"gemm": "generated"})
    requests = kernel_requests(artifact, arch)
    cubins = compile_kernels([r if aligned else r.without_promises() for r in requests])
    assert "gemm" in cubins[0].name and cubins[0].shared <= H200.shared
    # Only blocks that the hardware fetches need descriptors, which are made in memory of the launch.
    assert (cubins[0].global_scratch > 0) is (aligned and arch == 90)


def ref(sizes, strides, offset=0, dtype=torch.bfloat16):
    return Ref("x", sizes, strides, offset, dtype, torch.device("cpu"))


@pytest.mark.parametrize(
    ("given", "fetched"),
    [
        (ref((1, 64, 64), (0, 64, 1)), True),
        (ref((1, 64, 64), (0, 1, 64)), True),
        (ref((1, 64, 64), (0, 65, 1)), False),
        (ref((1, 64, 64), (0, 64, 1), 4), False),
        (ref((1, 64, 64), (0, 64, 1), 8), True),
        (ref((1, 64, 64), (0, 128, 2)), False),
        (ref((1, 64, 64), (0, 0, 1)), False),
        (ref((3, 64, 64), (4, 64, 1)), False),
        (ref((3, 64, 64), (4096, 64, 1)), True),
        (ref((1, 64, 63), (0, 68, 1), dtype=torch.float32), True),
    ],
)
def test_what_the_hardware_fetches(given, fetched):
    assert Side("left", given, 1, (64, 64)).is_fetched is fetched


def test_two_programs_run_beside_each_other_where_both_fit():
    small, large = GemmTile(64, 64, 64, 4, 3), GemmTile(128, 256, 64, 8, 3)
    assert shared_bytes(large, torch.bfloat16) < H200.shared < 2 * shared_bytes(large, torch.bfloat16)
    assert (resident(small, torch.bfloat16, H200), resident(large, torch.bfloat16, H200)) == (2, 1)


@pytest.mark.parametrize("aligned", [True, False], ids=["fetched", "by address"])
def test_tiles_of_a_round_that_most_programs_would_sit_out_are_done_in_halves(aligned, monkeypatch):
    """Six tiles by four programs: two of each do a half of the last two, whose second half is beyond the last column."""
    tile = GemmTile(16, 256, 16, 1, 2)
    monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
    monkeypatch.setattr(gemm, "device_facts", lambda device: evolve(H200, multiprocessors=4))
    monkeypatch.setattr(gemm, "resident", lambda *given: 1)
    assert [gemm.left_over(tile, tiles, 4) for tiles in (2, 4, 6, 7, 9)] == [0, 0, 2, 0, 1]
    assert gemm.left_over(evolve(tile, columns=128), 6, 4) == 0
    inputs = [r(48, 32), r(300, 32)]
    (found,) = run(traced(lambda x, w: (x @ w.t()).relu(), *inputs), inputs, aligned)
    torch.testing.assert_close(found, with_tf32(lambda x, w: (x @ w.t()).relu(), *inputs), rtol=1e-4, atol=1e-4)


def test_products_of_one_text_are_one_kernel():
    def twice(x, w, v):
        return (x @ w).relu(), (x @ v).relu()

    inputs = [r(32, 32), r(32, 32), r(32, 32)]
    artifact = compile_graph(traced(twice, *inputs), inputs, GENERATED)
    assert len({kernel.entry for kernel in artifact.kernels}) == 1 and len(artifact.kernels) == 2


def with_numbers(n, f):
    x = (torch.arange(640).view(20, 32) % 7 - 3).float()
    w = (torch.arange(768).view(32, 24) % 5 - 2).float()
    return ((x @ w) * f.item() + n.item()).relu()


@pytest.mark.parametrize(
    "tile", [GemmTile(16, 32, 16, 4, 2), GemmTile(16, 32, 16, 4, 2, 2), GemmTile(32, 256, 16, 4, 2)]
)
def test_numbers_known_at_run_time(tile, monkeypatch):
    monkeypatch.setattr(ChooseGemm, "tile", lambda self, candidate: tile)
    inputs = [torch.tensor(5), torch.tensor(0.37)]
    artifact = compile_graph(traced(with_numbers, *inputs, mode="symbolic"), inputs, {**GENERATED, "verify": True})
    # The product's kernel, or the one that adds up its parts, takes both numbers.
    taking = [kernel.entry for kernel in artifact.kernels if kernel.scalars == 2]
    assert len(taking) == 1 and ("gemm" if tile.parts == 1 else "_per_") in taking[0]
    for n, f in ((5, 0.37), (-40, 1e-3)):
        inputs = [torch.tensor(n), torch.tensor(f)]
        torch.testing.assert_close(load(artifact)(*inputs)[0], with_numbers(*inputs), rtol=1e-4, atol=1e-4)


def test_what_rounds_to_nothing_near_stays():
    # A NaN whose bits are all set would become -0 by adding to it, and the largest numbers are nearer to infinity than to any of 10 bits, as for the library.
    x, w = torch.ones(16, 16), torch.zeros(16, 16)
    w[0, :4] = torch.tensor([-1, 0x7F7FFFFF, 0x7F800000, -0x800000], dtype=torch.int32).view(torch.float32)
    (found,) = run(traced(lambda x, w: x @ w, x, w), [x, w])
    assert found[0, 0].isnan() and found[0, 1:4].tolist() == [torch.inf, torch.inf, -torch.inf]
