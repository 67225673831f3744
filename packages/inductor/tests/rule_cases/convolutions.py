"""Cases of the rules for convolutions."""

import torch
import torch.nn.functional as F

from .case import Case, floats

aten = torch.ops.aten
IMAGES = [*(x.to(memory_format=torch.channels_last) for x in floats((2, 32, 32, 32), (48, 32, 3, 3))), *floats((48,))]
CHANNELS = floats((2, 8, 6, 6), (4, 8, 3, 3), (4,), (4, 1, 1))
TRANSPOSED = floats((2, 8, 6, 6), (8, 4, 3, 3), (4,), (4, 1, 1))


def convolved(x, w, b):
    return aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def depthwise_gradients(mask=(True, True, True), dilation=1, groups=6):
    """A function of gradient, image and weight."""
    moves = ([1, 1], [1, 1], [dilation] * 2, False, [0, 0], groups)

    def function(grad, x, w):
        found = aten.convolution_backward(grad, x, w, [6], *moves, list(mask))
        return torch.cat([part.flatten() for part in found if part is not None])

    return function


def at_points(x, w, b, stride=1, groups=1):
    return aten.convolution(x, w, b, [stride, stride], [0, 0], [1, 1], False, [0, 0], groups)


def packed_convolution(x, w, b, *behind, padding=1):
    return torch.ops.mkldnn._convolution_pointwise(x, w, b, [padding, padding], [1, 1], [1, 1], 1, *behind)


GRADIENTS = floats((2, 6, 7, 7), (2, 6, 7, 7), (6, 1, 3, 3))
SUMMED = [*IMAGES, (torch.randn(2, 48, 32, 32) * 0.3).to(memory_format=torch.channels_last)]
NONE = ("none", [], "")

CASES = {
    "scale_of_a_convolution": Case(
        lambda x, w, b, s: s * convolved(x, w, b),
        CHANNELS,
        (
            (lambda x, w, b, s: (lambda y: s * y + y)(convolved(x, w, b)), CHANNELS),
            (lambda x, w, b, s: s * convolved(x, w + x[0, 0, 0, 0], b), CHANNELS),
            (lambda x, w, b, s: s.squeeze() * convolved(x[..., :4], w, b), CHANNELS),
            (lambda x, w, b, s: s / convolved(x, w, b), CHANNELS),
            (lambda x, w, b, s: convolved(x, w, b) * s, [x.bfloat16() for x in CHANNELS]),
            (lambda x, w, b, s: s * aten.convolution(x, w, b, [1, 1], [1, 1], [1, 1], True, [0, 0], 1), TRANSPOSED),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(1, 2, 3),
    ),
    "shift_of_a_convolution": Case(
        lambda x, w, b, s: convolved(x, w, None) - s,
        CHANNELS,
        (
            (lambda x, w, b, s: s - convolved(x, w, b), CHANNELS),
            (lambda x, w, b, s: torch.add(convolved(x, w, b), s, alpha=2), CHANNELS),
        ),
        tolerance=1e-5,
        cuda=False,
        frozen=(1, 2, 3),
    ),
    "convolution_with_a_packed_weight": Case(
        convolved,
        IMAGES,
        (
            (lambda x, w, b: convolved(x[:, :, :4, :4].contiguous(memory_format=torch.channels_last), w, b), IMAGES),
            (lambda x, w, b: convolved(x.contiguous(), w.contiguous(), b), IMAGES),
            (lambda x, w, b: convolved(x, w * x[0, 0, 0, 0], b), IMAGES),
        ),
        tolerance=1e-4,
        cuda=False,
        frozen=(1, 2),
    ),
    "gradients_of_a_depthwise_convolution": Case(
        depthwise_gradients(),
        GRADIENTS,
        (
            (depthwise_gradients(mask=(True, False, False)), GRADIENTS),
            (depthwise_gradients(mask=(False, True, False)), GRADIENTS),
            (depthwise_gradients(dilation=2), floats((2, 6, 5, 5), (2, 6, 7, 7), (6, 1, 3, 3))),
            (depthwise_gradients(groups=3), floats((2, 6, 7, 7), (2, 6, 7, 7), (6, 2, 3, 3))),
        ),
        options={"gemm": "generated"},
        tolerance=1e-5,
    ),
    "convolution_of_points_on_a_cpu": Case(
        lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b),
        IMAGES,
        (
            (lambda x, w, b: at_points(x, w, b), IMAGES),
            (lambda x, w, b: at_points(x[:1].contiguous(), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b, stride=2), IMAGES),
            (lambda x, w, b: at_points(x[:, :2].contiguous(memory_format=torch.channels_last), w[:, :1, 1:2, 1:2].contiguous(), b, groups=2), IMAGES),
            (lambda x, w, b: at_points(x.contiguous(), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x[:, :, :5, :5].contiguous(memory_format=torch.channels_last), w[:, :, 1:2, 1:2].contiguous(), b), IMAGES),
            (lambda x, w, b: at_points(x, w[:, :, 1:2, 1:2].contiguous(), b), [x.bfloat16() for x in IMAGES]),
        ),
        tolerance=1e-5,
        cuda=False,
        slow=True,
    ),
    "sum_with_a_convolution": Case(
        lambda x, w, b, y: y + packed_convolution(x, w, b, *NONE),
        SUMMED,
        (
            (lambda x, w, b, y: y[:1] + packed_convolution(x, w, b, *NONE), SUMMED),
            (lambda x, w, b, y: torch.add(y, packed_convolution(x, w, b, *NONE), alpha=2), SUMMED),
            (lambda x, w, b, y: y.contiguous() + packed_convolution(x, w, b, *NONE), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w, b, "relu", [], ""), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w[:, :, 1:2, 1:2].contiguous(), b, *NONE, padding=0), SUMMED),
            (lambda x, w, b, y: y + packed_convolution(x, w, b, *NONE), [x.bfloat16() for x in SUMMED]),
        ),
        tolerance=1e-5,
        cuda=False,
    ),
    "bias_of_a_convolution": Case(
        lambda x, w, b: F.conv2d(x, w, b).relu(),
        floats((2, 4, 6, 6), (8, 4, 3, 3), (8,)),
        (
            (lambda x, w: F.conv2d(x, w).relu(), floats((2, 4, 6, 6), (8, 4, 3, 3))),
            (lambda x, w, b: F.conv2d(x, w, b, groups=4).relu(), floats((2, 4, 6, 6), (4, 1, 3, 3), (4,))),
        ),
        tolerance=1e-6,
    ),
}  # fmt: skip
