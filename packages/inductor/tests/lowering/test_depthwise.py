"""Convolutions of a channel a group are loops over their windows, equal to eager's; all others are library calls."""

import pytest
import torch
import torch.nn.functional as F
from torch import float32
from tracing import convolved_on_cuda, traced_on_cuda

from flambeau_inductor.context import CompileContext
from flambeau_inductor.ir.loops import Extern, Pointwise
from flambeau_inductor.lowering.depthwise import gradients_are_loops
from flambeau_inductor.lowering.run import lower_graph

from .conftest import lower_and_run

aten = torch.ops.aten
LAST = torch.channels_last


def _operands(channels, window, each=1, sides=(9, 11), dtype=float32, last=False):
    generator = torch.Generator().manual_seed(sum(window))
    image = torch.randn(2, channels, *sides, generator=generator).to(dtype)
    weight = torch.randn(channels * each, 1, *window, generator=generator).to(dtype)
    bias = torch.randn(channels * each, generator=generator).to(dtype)
    return image.contiguous(memory_format=LAST) if last else image, weight, bias


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("window", "each", "moves"),
    [
        ((3, 3), 1, (1, 1, 1)),
        ((5, 2), 2, (2, (2, 0), 1)),
        ((1, 4), 3, ((1, 3), (0, 5), (1, 2))),
        ((9, 9), 1, (1, 4, 1)),
    ],
)
def test_depthwise(check, window, each, moves, last):
    """Steps, paddings and dilations of both dimensions; one channel of the result and several for each of the image."""
    image, weight, bias = _operands(4, window, each, last=last)
    stride, padding, dilation = moves

    def function(image, weight, bias):
        return F.conv2d(image, weight, bias, stride, padding, dilation, groups=4)

    # What channels lie side by side for has its own copy of the weight.
    copies = int(last)
    found = check(function, image, weight, bias, gemm="generated", modes=("fake",))
    assert [type(o) for o in found.graph.operations] == [Pointwise] * (1 + copies)
    check(lambda x, w: function(x, w, None), image, weight, gemm="generated", modes=("fake",))


def test_rows_and_half_types(check):
    """A convolution of rows; sums of half types are rounded once, and nothing else is."""
    torch.manual_seed(0)
    x, w = torch.randn(2, 6, 13), torch.randn(6, 1, 4)
    check(lambda x, w: F.conv1d(x, w, padding=3, groups=6), x, w, gemm="generated", modes=("fake",))
    image, weight, bias = _operands(4, (3, 3), dtype=torch.bfloat16, last=True)
    (got,) = lower_and_run(
        lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=4), image, weight, bias, gemm="generated"
    ).outputs
    exact = F.conv2d(image.double(), weight.double(), bias.double(), padding=1, groups=4)
    torch.testing.assert_close(got, exact.to(torch.bfloat16), rtol=2**-8, atol=0)


@pytest.mark.parametrize(
    ("groups", "window", "options"),
    [
        (1, 3, {"gemm": "generated"}),
        (2, 3, {"gemm": "generated"}),
        (4, 10, {"gemm": "generated"}),
        (4, 3, {"gemm": "library"}),
        (4, 3, {}),
    ],
)
def test_other_convolutions_are_calls(check, groups, window, options):
    """Several channels a group, large windows, where the options or the device ask for the library."""
    torch.manual_seed(0)
    x, w = torch.randn(1, 4, 12, 12), torch.randn(4, 4 // groups, window, window)
    check(lambda x, w: F.conv2d(x, w, groups=groups), x, w, library=["convolution.default"], **options)
    check(lambda x, w: F.conv_transpose2d(x, w[:, :1], groups=4), x, w, library=["convolution.default"])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    ("window", "stride", "padding"), [((3, 3), 1, 1), ((5, 2), 2, (2, 0)), ((1, 4), (1, 3), (0, 2))]
)
@pytest.mark.parametrize("of", ["image", "weight"])
def test_gradients(check, window, stride, padding, last, of):
    """Each element of the image asks the windows that hold it, of which steps leave some out; each of the weight sums over all points."""
    image, weight, _ = _operands(4, window, last=last)
    torch.manual_seed(0)
    # Small, so that sums of many differ by less than the least that counts.
    grad = torch.randn_like(F.conv2d(image, weight, None, stride, padding, groups=4)) / 8
    moves = [[n, n] if isinstance(n, int) else list(n) for n in (stride, padding, 1)]
    mask = [of == "image", of == "weight", False]

    def function(grad, image, weight):
        found = aten.convolution_backward(grad, image, weight, None, *moves, False, [0, 0], 4, mask)
        return found[mask.index(True)]

    check(function, grad, image, weight, gemm="generated", modes=("fake",))


@pytest.mark.parametrize(
    ("taps", "dtype", "options", "calls"),
    [
        (9, torch.bfloat16, {}, 0),
        (9, float32, {"gemm": "library"}, 1),
        (7, float32, {}, 0),
        (7, torch.bfloat16, {}, 1),
        (7, torch.bfloat16, {"max_autotune": True}, 1),
        (3, torch.bfloat16, {"max_autotune_gemm": True}, 0),
    ],
)
def test_on_a_gpu_where_they_are_faster(taps, dtype, options, calls):
    """Channels-last; by rows they have to be asked for."""
    shapes = ((2, 16, 12, 12), (16, 1, taps, taps))
    operands = [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]

    def library_calls(trace):
        gm = trace(lambda x, w: F.conv2d(x, w, padding=taps // 2, groups=16), *operands)
        context = CompileContext(CompileContext().config.with_options(options))
        graph = lower_graph(gm, [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")], context)
        return sum(isinstance(operation, Extern) for operation in graph.operations)

    assert library_calls(convolved_on_cuda) == calls
    assert library_calls(traced_on_cuda) == (calls if taps > 7 or options else 1)


@pytest.mark.parametrize(
    ("taps", "side", "itemsize", "options", "expected"),
    [
        (9, 32, 4, {}, True),
        (9, 32, 2, {"gemm": "library"}, False),
        (3, 56, 4, {}, False),
        (3, 56, 2, {"max_autotune": True}, True),
        (3, 112, 4, {"max_autotune": True}, False),
        (7, 7, 4, {"max_autotune_gemm": True}, True),
        (7, 7, 2, {"max_autotune_gemm": True}, False),
    ],
)
def test_gradients_on_a_gpu_where_they_are_faster(taps, side, itemsize, options, expected):
    """Sums over many large windows are left to the library where it has them."""
    config = CompileContext().config.with_options(options)
    found = gradients_are_loops(config, torch.device("cuda"), itemsize, taps * taps, 16 * side * side)
    assert found is expected
