"""Convolutions with epilogues under Triton's interpreter equal eager, and compile for GPUs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve

pytest.importorskip("triton")

from rounding import with_tf32
from tracing import convolved_on_cuda, traced

from flambeau_inductor.codegen.triton.templates.windows import WindowSide
from flambeau_inductor.devices import H200
from flambeau_inductor.ir.kernel import Window
from flambeau_inductor.ir.layout import Ref
from flambeau_inductor.pipeline import compile_graph
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Launch
from flambeau_runtime.triton_kernels import ALIGNED, compile_kernels, kernel_requests

GENERATED = {"cpu_backend": "triton", "gemm": "generated", "verify": True}
LAST = torch.channels_last


def r(*sizes, dtype=torch.float32):
    tensor = torch.randn(*sizes, dtype=dtype)
    return tensor.to(memory_format=LAST) if len(sizes) == 4 else tensor


def normed(x, w, mean, var, scale, shift, y):
    return F.relu(F.batch_norm(F.conv2d(x, w, padding=1), mean, var, scale, shift) + y)


def convolution(**options):
    return lambda x, w, *b: F.relu(F.conv2d(x, w, *b, **options))


CASES = {
    "3 x 3": (convolution(padding=1), r(2, 16, 9, 7), r(32, 16, 3, 3), r(32)),
    "1 x 1": (lambda x, w, b: F.silu(F.conv2d(x, w, b)), r(2, 24, 5, 7), r(40, 24, 1, 1), r(40)),
    "1 x 1 at every other point": (convolution(stride=2), r(2, 16, 9, 8), r(20, 16, 1, 1), r(20)),
    "1 x 1 in groups": (convolution(groups=2), r(2, 32, 5, 5), r(40, 16, 1, 1), r(40)),
    "three channels": (convolution(stride=2, padding=3), r(2, 3, 17, 15), r(24, 3, 7, 7), r(24)),
    "odd channels": (convolution(padding=1), r(1, 21, 6, 5), r(19, 21, 3, 3), r(19)),
    "channels of several blocks": (convolution(padding=1), r(1, 96, 5, 6), r(40, 96, 3, 3), r(40)),
    "stride, padding, dilation": (convolution(stride=(1, 2), padding=(2, 1), dilation=(2, 3)), r(2, 24, 13, 14), r(10, 24, 3, 2), r(10)),
    "more padding than image": (convolution(padding=4), r(2, 16, 2, 3), r(8, 16, 3, 3)),
    "no padding": (convolution(), r(2, 16, 6, 5), r(8, 16, 3, 2)),
    "the whole image": (convolution(), r(3, 16, 4, 4), r(8, 16, 4, 4)),
    "every other point": (convolution(stride=2, padding=1), r(2, 32, 8, 12), r(24, 32, 3, 3), r(24)),
    "every other point of odd lines": (convolution(stride=2, padding=1), r(2, 32, 9, 7), r(24, 32, 3, 3)),
    "every third point": (convolution(stride=3, padding=2), r(2, 16, 9, 12), r(24, 16, 5, 5)),
    "strides, dilation, groups": (convolution(stride=(2, 3), padding=(3, 1), dilation=(2, 1), groups=2), r(2, 32, 10, 12), r(32, 16, 3, 3)),
    "groups": (convolution(padding=1, groups=2), r(2, 32, 7, 6), r(48, 16, 3, 3), r(48)),
    "batch norm and residual": (normed, r(2, 16, 6, 6), r(24, 16, 3, 3), r(24), r(24).abs(), r(24), r(24), r(2, 24, 6, 6)),
    "groups, a factor, a residual": (
        lambda x, w, z, y: F.relu(F.conv2d(x, w, padding=1, groups=4) * z + y),
        r(2, 32, 7, 6), r(40, 8, 3, 3), r(40, 1, 1), r(2, 40, 7, 6),
    ),
    "the result is needed as well": (lambda x, w: (lambda y: (y, y.tanh()))(F.conv2d(x, w, padding=1)), r(2, 16, 6, 7), r(10, 16, 3, 3)),
    "bfloat16": (convolution(padding=1), r(2, 16, 9, 7, dtype=torch.bfloat16), r(32, 16, 3, 3, dtype=torch.bfloat16), r(32, dtype=torch.bfloat16)),
    "another type": (lambda x, w: F.conv2d(x, w, padding=1).float() * 3, r(2, 16, 6, 7, dtype=torch.float16), r(10, 16, 3, 3, dtype=torch.float16)),
    "rows": (
        lambda x, w: F.conv1d(x.transpose(1, 2), w.transpose(1, 2), stride=2, padding=1).tanh(),
        r(2, 9, 16), r(24, 3, 16),
    ),
    "images in a larger one": (lambda x, w: F.relu(F.conv2d(x[:, :, 1:], w, padding=1)), r(2, 16, 9, 7), r(32, 16, 3, 3)),
    "results by rows": (lambda x, w: F.relu(F.conv2d(x, w)).contiguous(), r(2, 16, 6, 7), r(24, 16, 3, 3)),
    "no images": (convolution(padding=1), r(0, 16, 6, 7), r(24, 16, 3, 3)),
}  # fmt: skip
#: How many launches, where it is not one; these come without a call as well.
LAUNCHES = {"images in a larger one": 2}


def with_promise(artifact, aligned):
    """The same kernels for pointers that are multiples of 16 bytes, or not."""
    kernels = [
        evolve(k, meta={**k.meta, "constexprs": {**k.meta["constexprs"], ALIGNED: aligned}})
        if ALIGNED in k.meta["constexprs"]
        else k
        for k in artifact.kernels
    ]
    return evolve(artifact, kernels=tuple(kernels))


@pytest.mark.parametrize("aligned", [True, False], ids=["fetched", "by address"])
@pytest.mark.parametrize("name", CASES)
def test_equals_eager(name, aligned):
    function, *inputs = CASES[name]
    artifact = with_promise(compile_graph(traced(function, *inputs), inputs, GENERATED), aligned)
    kinds = [type(step) for step in artifact.program.instructions]
    if all(tensor.numel() for tensor in inputs):
        assert (kinds.count(Launch), kinds.count(Call)) == (LAUNCHES.get(name, 1), 0)
        assert any("gemm" in kernel.entry for kernel in artifact.kernels)
    expected = with_tf32(function, *inputs)
    tolerance = 1e-4 if inputs[0].dtype is torch.float32 else 2e-2
    for have, want in zip(
        load(artifact)(*inputs), expected if isinstance(expected, tuple) else (expected,), strict=True
    ):
        torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)
        # Of one element any stride is as good.
        assert all(n == 1 or a == b for n, a, b in zip(want.shape, have.stride(), want.stride(), strict=True))


def test_a_tap_outside_of_the_image_adds_nothing():
    # Not even where a weight is infinite: what is loaded beyond the last term is zero on both sides.
    x, w = r(1, 16, 3, 3), r(8, 16, 3, 3)
    x[0, :, 0, 0] = torch.inf
    artifact = compile_graph(traced(F.conv2d, x, w), [x, w], GENERATED)
    x[0, :, 0, 0] = torch.nan
    (found,) = load(artifact)(x, w)
    assert found.isnan().all()
    w[:, :, 0, 0] = 0
    x[0, :, 0, 0] = 1
    (found,) = load(artifact)(x, w)
    torch.testing.assert_close(found, with_tf32(F.conv2d, x, w), rtol=1e-4, atol=1e-4)


def side(channels, terms, size=8, images=2, *, stride=1, taps=3, padding=1, offset=0, rows=64):
    sizes = (images, channels, size, size)
    strides = (size * size * channels, 1, size * channels, channels)
    image = Ref("x", sizes, strides, offset, torch.bfloat16, torch.device("cpu"))
    points = ((size + 2 * padding - taps) // stride + 1,) * 2
    pairs = [(n, n) for n in (taps, stride, padding)]
    return WindowSide("left", Window(image, 1, points, *pairs, (1, 1)), (rows, terms))


def test_blocks_are_of_one_tap_where_they_divide_the_channels():
    assert side(64, 32).by_tap and not side(48, 32).by_tap
    # Else nothing is fetched, and there are terms beyond the last one.
    assert "terms" not in " ".join(side(64, 32).load()) and "terms < 432" in " ".join(side(48, 32).load())


@pytest.mark.parametrize(
    ("given", "box"),
    [
        (side(64, 32, 56, 32), (1, 8, 8)),
        (side(64, 32, 56, 32, rows=128), (2, 8, 8)),
        (side(64, 32, 14, 32, rows=128), (32, 2, 2)),
        # Boxes of seven by seven points would leave too much idle.
        (side(64, 32, 7, 2), None),
        (side(64, 32, 8, 4, stride=2), (4, 4, 4)),
        # Beyond a line's end is the next line, as two columns are taken as one.
        (side(64, 32, 9, stride=2), None),
        # Unless nothing beyond it is looked at.
        (side(64, 32, 15, stride=2, taps=1, padding=0), (1, 8, 8)),
        (side(64, 32, 8, 4, stride=2, taps=1, padding=0), (4, 4, 4)),
        (side(4, 16, 8), None),
        (side(64, 32, 8, offset=1), None),
    ],
)
def test_boxes(given, box):
    assert given.box == box


def test_places_of_large_images_are_counted_in_64_bits():
    assert "int64" not in " ".join(side(64, 32, 1024, 30).load())
    assert "int64" in " ".join(side(64, 32, 1024, 32).load())


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("channels", [64, 3])
def test_compiles_for_gpus(arch, channels):
    sizes = (8, channels, 14, 14), (64, channels, 3, 3)
    meta = [torch.empty(*s, dtype=torch.bfloat16, device="meta").to(memory_format=LAST) for s in sizes]
    gm = convolved_on_cuda(lambda x, w: F.conv2d(x, w, padding=1).relu(), *meta)
    artifact = compile_graph(gm, meta, {"gemm": "generated"})
    (cubin,) = [c for c in compile_kernels(kernel_requests(artifact, arch)) if "gemm" in c.name]
    assert cubin.shared <= H200.shared
