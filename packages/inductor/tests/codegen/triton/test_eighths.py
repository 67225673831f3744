"""Kernels that hold floats of 8 bits: converted as eager does, moved, and left to libraries where anything else is done to them."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from tracing import traced, traced_on_cuda

from flambeau_inductor.ops import dtypes
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.triton_kernels import compile_kernels, kernel_requests

EIGHTH = torch.float8_e4m3fn
#: Around each rounding: ties, the largest number and what is beyond it, subnormal numbers and less than half of the smallest, no numbers.
VALUES = torch.cat([
    torch.linspace(-500, 500, 2001), torch.linspace(-0.1, 0.1, 801),
    torch.tensor([463.9, 464.0, 464.1, 480.0, 1e6, torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 0.9 * 2.0**-10]),
])  # fmt: skip


def run(function, *inputs, launches=1, calls=0):
    artifact = compile_graph(traced(function, *inputs), inputs, {"cpu_backend": "triton"})
    kinds = [type(step) for step in artifact.program.instructions]
    assert (kinds.count(Launch), kinds.count(Call)) == (launches, calls)
    (found,) = load(artifact)(*inputs)
    return found


def same(found, expected):
    assert found.dtype is expected.dtype
    torch.testing.assert_close(found.float(), expected.float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(
        found.float().signbit() & (found.float() == 0), expected.float().signbit() & (expected.float() == 0)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64], ids=str)
def test_converted_as_in_eager(dtype):
    """Also where a conversion back follows in the same kernel: it undoes nothing."""
    values = VALUES.nan_to_num(7, 9, -9).to(dtype) if dtype is torch.int64 else VALUES.to(dtype)
    same(run(lambda x: x.to(EIGHTH), values), values.to(EIGHTH))
    same(run(lambda x: x.to(EIGHTH).to(dtype), values), values.to(EIGHTH).to(dtype))
    same(run(lambda x: x.to(dtype), values.to(EIGHTH)), values.to(EIGHTH).to(dtype))


def test_a_torch_that_does_not_saturate_gives_no_number(monkeypatch):
    """Beyond the largest number versions of torch differ; each has kernels like its own."""
    from flambeau_inductor.codegen.triton import ops

    assert dtypes.saturates(EIGHTH) is (not torch.tensor(1e6).to(EIGHTH).isnan().item())
    monkeypatch.setattr(ops, "saturates", lambda dtype: False)
    found = run(lambda x: x.to(EIGHTH), VALUES).float()
    beyond = ~(VALUES.abs() <= 464)
    assert found[beyond].isnan().all() and torch.equal(found[~beyond], VALUES[~beyond].to(EIGHTH).float())


def test_moved_and_quantised_with_what_makes_them():
    def quantised(x):
        scale = x.abs().amax(-1, keepdim=True) / 448
        return (x / scale).clamp(-448, 448).to(EIGHTH).t().contiguous()

    x = torch.randn(24, 40)
    same(run(quantised, x), quantised(x))


def test_a_narrower_type_between_is_not_undone():
    x = torch.randn(64).bfloat16() * 1e6
    same(run(lambda x: x.half().bfloat16(), x), x.half().bfloat16())


def test_what_is_no_conversion_stays_a_call():
    x = torch.randn(8, 8).to(EIGHTH)
    same(run(lambda x: torch.cat([x, x]), x, launches=0, calls=1), torch.cat([x, x]))


def test_compiles_for_gpus():
    gm = traced_on_cuda(lambda x: (x.float() * 3).to(EIGHTH), torch.empty(1001, dtype=EIGHTH, device="meta"))
    artifact = compile_graph(gm, [torch.empty(1001, dtype=EIGHTH, device="meta")], {})
    assert len(compile_kernels(kernel_requests(artifact, 90))) == 1
