"""Functions in the epilogue of a product whose results are rounded to 16 bits: as near to eager's as one more rounding, without branches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tracing import traced

from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load

VALUES = torch.cat(
    [
        torch.linspace(-95, 95, 1800),
        torch.linspace(-4, 4, 1200),
        torch.randn(500) * 1e-3,
        torch.tensor([0.0, -0.0, 1e30, -1e30]),
    ]
).view(8, -1)


def _nearly_gelu(y):
    return 0.5 * y * (1 + torch.tanh(0.8 * (y + 0.044715 * (y * y * y))))


FUNCTIONS = {
    "silu": (F.silu, "rough_silu"),
    "a quotient": (lambda y: y / (1 + (y * -2).exp()), "rough_divide"),
    "sigmoid": (torch.sigmoid, "rough_sigmoid"),
    "tanh": (torch.tanh, "rough_tanh"),
    "gelu": (F.gelu, "rough_erf_beside_one"),
    "gelu by tanh": (lambda y: F.gelu(y, approximate="tanh"), "rough_gelu"),
    "nearly gelu": (lambda y: _nearly_gelu(y.float()).to(y.dtype), "rough_tanh_beside_one"),
}  # fmt: skip


def run(function, values, dtype):
    """The function of a product that is ``values``, and the source."""
    inputs = [torch.eye(8).to(dtype), values.to(dtype)]
    artifact = compile_graph(
        traced(lambda x, w: function(x @ w), *inputs), inputs, {"cpu_backend": "triton", "gemm": "generated"}
    )
    (found,) = load(artifact)(*inputs)
    return found, artifact.libraries[0].source


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_near_to_eager(name, dtype):
    function, helper = FUNCTIONS[name]
    values = VALUES.clamp(-3e4, 3e4) if dtype is torch.float16 else VALUES
    found, source = run(function, values, dtype)
    assert f"{helper}(" in source
    torch.testing.assert_close(found, function(values.to(dtype)), rtol=2 * torch.finfo(dtype).eps, atol=2e-6)


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"gelu"}))
def test_no_numbers_are_eagers(name):
    """Also infinities, of which the CPU's own GELU makes NaN."""
    function, _ = FUNCTIONS[name]
    values = torch.zeros(8, 4)
    values[0] = torch.tensor([torch.inf, -torch.inf, torch.nan, 1.0])
    inputs = [part.bfloat16() for part in (torch.eye(8), torch.zeros(8, 4), values)]

    def program(x, w, b):
        return function(torch.addmm(b, x, w))

    artifact = compile_graph(traced(program, *inputs), inputs, {"cpu_backend": "triton", "gemm": "generated"})
    (found,) = load(artifact)(*inputs)
    torch.testing.assert_close(found, program(*inputs), equal_nan=True)


def test_float32_keeps_all_its_bits():
    # Of operands that TF32 holds exactly.
    values = VALUES.bfloat16().float()
    found, source = run(F.silu, values, torch.float32)
    assert "rough" not in source
    torch.testing.assert_close(found, F.silu(values))
