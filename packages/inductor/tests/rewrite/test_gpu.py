"""What the rewrites make of graphs on a real GPU equals eager, in values and strides."""

import pytest
import torch
import torch.nn.functional as F
from tracing import adamw, traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_runtime.artifact import Alloc

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def check(function, *inputs, tolerance=1e-4, **options):
    """Compile on fakes, run, compare; the artifact."""
    inputs = [t.cuda() for t in inputs]
    with torch.no_grad():
        artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True, **options})
        results = flambeau_runtime.load(artifact)(*[t.clone() for t in inputs])
        wanted = function(*inputs)
    for got, want in zip(results, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
        assert got.stride() == want.stride()
    return artifact


def calls(artifact):
    """Names of the library calls."""
    return [getattr(i, "op", "").removeprefix("aten::") for i in artifact.program.instructions]


def network(x, w1, b1, w2, w3, mean, var):
    """Dense and depthwise convolutions, a residual, pools; results of several shapes."""
    y = F.relu(F.batch_norm(F.conv2d(x, w1, b1, padding=1), mean, var))
    z = F.conv2d(y, w2, None, padding=1) + F.conv2d(y, w3, None, padding=1, groups=32)
    z = F.relu(F.conv2d(F.relu(z), w2, b1, padding=1)) + z
    return F.max_pool2d(z, 2), F.adaptive_avg_pool2d(z, 1).flatten(1), z.mean((2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("enabled", [True, False])
def test_convolutions(dtype, enabled):
    """Channels-last inside; without the option, as eager has them."""
    shapes = ((4, 16, 28, 28), (32, 16, 3, 3), (32,), (32, 32, 3, 3), (32, 1, 3, 3), (32,), (32,))
    inputs = [(torch.rand(shape) - 0.4).to(dtype) * 0.3 for shape in shapes]
    inputs[-1] = inputs[-1].abs() + 0.5
    tolerance = 5e-3 if dtype is torch.float32 else 5e-2
    artifact = check(network, *inputs, tolerance=tolerance, layout_optimization=enabled)
    written = [i.strides for i in artifact.program.instructions if isinstance(i, Alloc) and len(i.strides) == 4]
    assert any(strides[1] == 1 for strides in written) is enabled


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_of_single_channels(dtype, last):
    """They are loops, and so are their gradients."""

    def function(x, w, d, grad):
        y = F.relu(F.conv2d(x, w))
        moves = ([2, 2], [1, 1], [1, 1], False, [0, 0], 32)
        gradients = torch.ops.aten.convolution_backward(grad, y, d, [32], *moves, [True, True, True])
        return F.gelu(F.conv2d(y, d, stride=2, padding=1, groups=32)), *(part.flatten() for part in gradients)

    shapes = ((4, 16, 28, 28), (32, 16, 1, 1), (32, 1, 3, 3), (4, 32, 14, 14))
    inputs = [(torch.rand(shape) - 0.4).to(dtype) for shape in shapes]
    inputs = [x.contiguous(memory_format=torch.channels_last) if last else x for x in inputs]
    artifact = check(function, *inputs, tolerance=5e-3 if dtype is torch.float32 else 5e-2, gemm="generated")
    assert not [call for call in calls(artifact) if "backward" in call]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [8, 512])
def test_products_with_bias_and_activation(dtype, rows):
    """Small ones through the library's epilogue, larger float32 ones with a bias that the next kernel adds."""

    def function(x, w, b):
        return F.relu(F.linear(x, w, b)), F.gelu(F.linear(x, w, b + 1))

    inputs = [torch.randn(rows, 512).to(dtype), (torch.randn(1024, 512) / 23).to(dtype), torch.randn(1024).to(dtype)]
    found = calls(check(function, *inputs, tolerance=1e-3 if dtype is torch.float32 else 2e-2))
    large = dtype is torch.float32 and rows == 512
    assert ("_addmm_activation" in found) is not large
    assert ("mm" in found) is large


def test_attention_on_views():
    """Keys and values are read through their strides."""

    def function(q, k, v):
        return F.scaled_dot_product_attention(*(x.view(2, 64, 4, 32).transpose(1, 2).contiguous() for x in (q, k, v)))

    for dtype in (torch.float16, torch.float32):
        check(function, *(torch.randn(2, 64, 128).to(dtype) for _ in range(3)), tolerance=5e-3)


def test_an_optimizer_step_is_one_launch():
    """Tensors of any shape, updated together."""
    shapes = [(256, 64), (64,), (1000,), (3, 5, 7), (1,), (256, 64)]
    artifact = check(adamw, *[torch.rand(shape) for _ in range(4) for shape in shapes], tolerance=1e-5)
    assert len(artifact.kernels) == 1


def test_in_place_results_of_other_shapes():
    """A product's result is overwritten by the pointwise work that reads it, in another shape."""

    def function(x, w):
        for _ in range(3):
            x = torch.tanh((x @ w).view(8, 16, 64) + 1).view(128, 64)
        return x.sum(0), x

    check(function, torch.randn(128, 64), torch.randn(64, 64) / 8, tolerance=1e-3)
