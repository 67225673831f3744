"""Pools and depthwise convolutions in one kernel with what stands before and behind, of both generators, equal eager's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tracing import lowered, traced

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.pipeline import compile_graph, compile_loops
from flambeau_runtime import load

aten = torch.ops.aten
LAST = torch.channels_last


def _image(last: bool) -> torch.Tensor:
    """Equal elements, infinities, NaNs."""
    x = torch.randint(-9, 9, (2, 8, 9, 11), generator=torch.Generator().manual_seed(1)).float()
    x.view(-1)[[0, 300, 700]] = float("nan")
    x.view(-1)[[11, 12, 400]] = float("-inf")
    return x.contiguous(memory_format=LAST if last else torch.contiguous_format)


def _compiled(function, inputs, backend):
    graph = lowered(traced(function, *inputs))
    built = compile_loops(graph, CompileContext(Config(cpu_backend=backend)))
    executor = "python" if backend == "triton" else "native"
    return load(built.artifact, constants=built.constants, executor=executor), built.artifact


def _same(function, inputs, backend):
    run, artifact = _compiled(function, inputs, backend)
    wanted = function(*inputs)
    for got, want in zip(run(*inputs), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
        assert got.stride() == want.stride()
    return artifact


@pytest.mark.parametrize("backend", ["triton", "cpp"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_kernel_from_the_bias_to_what_follows_the_pool(backend, last, dtype):
    """Value and index come from one kernel, with what stands before and behind."""
    x, b = _image(last).to(dtype), torch.randn(8, 1, 1).to(dtype)

    def function(x, b):
        value, index = aten.max_pool2d_with_indices(F.relu(x + b), 3, 2, 1)
        return value * 2 + 1, index

    assert len(_same(function, [x, b], backend).kernels) == 1
    assert len(_same(lambda x, b: function(x, b)[0], [x, b], backend).kernels) == 1
    assert len(_same(lambda x, b: F.avg_pool2d(F.relu(x + b), 2).sigmoid(), [x, b], backend).kernels) == 1


@pytest.mark.parametrize("backend", ["triton", "cpp"])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_depthwise_convolutions_are_one_kernel_with_what_follows(backend, last, dtype):
    """A norm before it and activation and residual behind it; what is outside of the image is zero, not the norm of zero. Channels side by side
    have the weight's elements laid out before."""
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 12, 6, 7), torch.randn(24, 1, 3, 3), torch.randn(24)
    y = torch.randn(2, 24, 6, 7)
    x, w, b, y = (
        t.to(dtype).contiguous(memory_format=LAST if last and t.dim() == 4 else torch.contiguous_format)
        for t in (x, w, b, y)
    )

    def function(x, w, b, y):
        return F.gelu(F.conv2d(F.relu(x + 1), w, b, padding=1, groups=12)) + y

    artifact = compile_graph(traced(function, x, w, b, y), [x, w, b, y], {"cpu_backend": backend, "gemm": "generated"})
    (got,) = load(artifact)(x, w, b, y)
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(got, function(x, w, b, y), rtol=tolerance, atol=tolerance)
    assert len(artifact.kernels) == 1 + last


@pytest.mark.parametrize("backend", ["triton", "cpp"])
@pytest.mark.parametrize("last", [False, True])
def test_gradients_of_pools_are_one_kernel(backend, last):
    """With the gradient of the ReLU before the pool."""
    x = torch.randn(2, 8, 9, 11).contiguous(memory_format=LAST if last else torch.contiguous_format)
    value, index = aten.max_pool2d_with_indices(x, 3, 2, 1)

    def function(g, x, i):
        back = aten.max_pool2d_with_indices_backward(g, x, [3, 3], [2, 2], [1, 1], [1, 1], False, i)
        return aten.threshold_backward(back, x, 0)

    assert len(_same(function, [torch.randn_like(value), x, index], backend).kernels) == 1
