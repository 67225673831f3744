"""Convolutions in which each channel has a window of its own (depthwise), as loops over the elements of the window.

In: an image, a weight of one channel for each group, moves. Out: a stored result, whose kernel also does what follows it; likewise the gradients of both. Libraries' kernels for
large windows want rows of an image side by side, copy images that are channels-last, and are far from what memory takes. All other convolutions stay with the library, and
become kernels of ours later (``schedule/products.py``).

Sums are float32 for half types, and rounded once. Where channels are side by side in memory, so are the elements of the weight that they need: it is laid out by windows first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from ..config import Config
from ..devices import device_of
from ..expr import ONE, ZERO, Expr, Int, as_expr, floor_div, hint
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.aten import Trait
from .builder import Builder
from .pooling import ready, stored
from .registry import LEFT, Decline, lowers
from .values import Index, TensorValue, compute_dtype
from .windows import Steps, all_of

#: The most elements of a window that are read one after the other.
_MOST_TAPS = 81
#: The largest windows that libraries have kernels for channels-last, and those of half types up to which loops are faster. Measured on an H200 (torch 2.11, 16 images channels-last with what
#: follows; us of the library in float32 and bfloat16, loops): 9 x 9 of 1,536 channels at 32 x 32 7833 and 7854, 675 and 540; 7 x 7 of 768 there 324 and 153, 196 and 159, of 96 at 56 x 56 109 and 52, 75
#: and 50; 3 x 3 of 32 at 112 x 112 52 and 45, 30 and 27; 5 x 5 of 480 at 14 x 14 25 and 22, 18 and 16; 3 x 3 of 1,152 at 7 x 7 13 and 14, 7 and 7. Images by rows have to ask for loops.
_MOST_OF_LIBRARIES, _MOST_OF_HALVES = 49, 25
#: The most elements of all windows of a channel for loops that compute gradients, where libraries have them. Measured likewise (forward and backward): 9 x 9 of 1,536 channels at 32 x 32 28475 and 13674, 3326
#: and 4098; 3 x 3 of 96 at every other of 112 x 112 223 and 170, 106 and 82; 5 x 5 of 480 at 14 x 14 135 and 58, 69 and 56; but 7 x 7 of 96 at 56 x 56 1452 and 218, 2602 and 1355, and 3 x 3 of 32 at
#: 112 x 112 118 and 129, 311 and 197.
_MOST_SUMMED = 1 << 19
#: The most sums that are kept side by side.
_MOST_ACROSS = 9


# cuDNN and oneDNN choose by sizes, build and machine whether a result lies channels-last.
@lowers("convolution", traits=Trait.CHOOSES_LAYOUT)
def convolution(
    g: Builder,
    image: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: Any,
) -> TensorValue:
    n = weight.rank - 2
    if transposed or n not in (1, 2) or image.rank != weight.rank or not _is_depthwise(image, weight, groups):
        raise Decline(LEFT)
    if not _is_wanted(g, weight):
        raise Decline(LEFT)
    spans = _spans(image, g.out_sizes, weight, stride, padding, dilation)
    if math.prod(span.taps for span in spans) > _MOST_TAPS:
        raise Decline("large windows")
    each = floor_div(weight.sizes[0], image.sizes[1])
    compute = compute_dtype(image.dtype)
    plane = ready(g, image, spans, share=_share(image))
    elements = _by_windows(g, weight, g.out)
    zero = sc.constant(0, compute)

    def at(index: Index) -> Scalar:
        channel, point = index[1], index[2:]
        total = None if bias is None else g.convert(bias.at((channel,)), compute)
        for taps in itertools.product(*(range(span.taps) for span in spans)):
            parts = list(zip(spans, point, taps, strict=True))
            place = (
                tuple(span.place(o, k) for span, o, k in parts),
                all_of(span.is_inside(o, k) for span, o, k in parts),
            )
            seen = plane.at((index[0], floor_div(channel, each)), place, compute, zero)
            factor = g.convert(elements.at((*map(Int, taps), channel)), compute)
            total = sc.op("mul", seen, factor) if total is None else sc.op("fma", seen, factor, total)
        assert total is not None
        return g.convert(total, image.dtype)

    return stored(g, g.out, image.device, at)


@lowers("convolution_backward", traits=Trait.CHOOSES_LAYOUT)
def convolution_backward(
    g: Builder,
    grad: TensorValue,
    image: TensorValue,
    weight: TensorValue,
    bias_sizes: Sequence[Any] | None,
    stride: Sequence[Any],
    padding: Sequence[Any],
    dilation: Sequence[Any],
    transposed: bool,
    output_padding: Sequence[Any],
    groups: Any,
    output_mask: Sequence[bool],
) -> tuple[TensorValue | None, ...]:
    """One gradient alone: the image's, or the weight's."""
    n, mask = weight.rank - 2, list(output_mask)
    fits = not transposed and n in (1, 2) and image.rank == weight.rank and sum(mask) == 1 and not mask[2]
    if not fits or weight.sizes[0] is not image.sizes[1] or not _is_depthwise(image, weight, groups):
        raise Decline(LEFT)
    points = math.prod(hint(size) for size in (grad.sizes[0], *grad.sizes[2:]))
    if not gradients_are_loops(g.context.config, weight.device, weight.dtype.itemsize, _taps(weight), points):
        raise Decline(LEFT)
    spans = _spans(image, grad.sizes, weight, stride, padding, dilation)
    if mask[0]:
        return _image_gradient(g, grad, weight, spans), None, None
    return None, _weight_gradient(g, grad, image, weight, spans), None


def _image_gradient(g: Builder, grad: TensorValue, weight: TensorValue, spans: Sequence[Steps]) -> TensorValue:
    """Each element asks the windows that hold it."""
    if math.prod(span.holders for span in spans) > _MOST_TAPS or any(span.dilation > 1 for span in spans):
        raise Decline("large windows, or with gaps")
    assert g.node is not None
    result, compute = g.node.meta["val"][0], compute_dtype(grad.dtype)
    ready(g, grad, spans, share=_share(grad))
    elements = _by_windows(g, weight, result)
    zero = sc.constant(0, compute)

    def at(index: Index) -> Scalar:
        total: Scalar | None = None
        for numbers in itertools.product(*(range(span.holders) for span in spans)):
            parts = list(zip(spans, index[2:], numbers, strict=True))
            windows = tuple(span.holder(h, j) for span, h, j in parts)
            holds = all_of(span.holds(h, o) for (span, h, _), o in zip(parts, windows, strict=True))
            taps = tuple(h + span.padding - o * span.stride for (span, h, _), o in zip(parts, windows, strict=True))
            seen = sc.masked(holds, g.convert(grad.at((*index[:2], *windows)), compute), zero)
            factor = g.convert(elements.at((*taps, index[1])), compute)
            if not all(tap.is_int for tap in taps):
                factor = sc.masked(holds, factor, zero)
            total = sc.op("mul", seen, factor) if total is None else sc.op("fma", seen, factor, total)
        assert total is not None
        return g.convert(total, grad.dtype)

    return stored(g, result, grad.device, at)


def _weight_gradient(
    g: Builder, grad: TensorValue, image: TensorValue, weight: TensorValue, spans: Sequence[Steps]
) -> TensorValue:
    """Sums over all points: those of the places of a window's row are one kernel that reads the gradient once for all of them, and that
    leaves one sum for each row of points, which the next kernel adds up."""
    *above, across = spans
    if across.taps > _MOST_ACROSS or math.prod(span.taps for span in spans) > _MOST_TAPS:
        raise Decline("large windows")
    assert g.node is not None
    result, compute = g.node.meta["val"][1], compute_dtype(grad.dtype)
    for operand in (grad, image):
        g.ref(operand)
    zero = sc.constant(0, compute)
    rows, heights = [Int(span.taps) for span in above], grad.sizes[2:-1]
    kept = len(rows) + len(heights) + 1

    def column(tap: int) -> TensorValue:
        def at(index: Index) -> Scalar:
            row, height, (channel, number, side) = index[: len(rows)], index[len(rows) : kept - 1], index[kept - 1 :]
            point = (*height, side)
            parts = list(zip(spans, point, (*row, Int(tap)), strict=True))
            place = tuple(span.place(o, k) for span, o, k in parts)
            inside = all_of(span.is_inside(o, k) for span, o, k in parts)
            seen = sc.masked(inside, g.convert(image.at((number, channel, *place)), compute), zero)
            return sc.op("mul", g.convert(grad.at((number, channel, *point)), compute), seen)

        sizes = (*rows, *heights, grad.sizes[1], grad.sizes[0], grad.sizes[-1])
        return g.reduce(g.lazy(sizes, compute, grad.device, at), (kept, kept + 1), "sum", dtype=compute)

    columns = [column(tap) for tap in range(across.taps)]

    def at(index: Index) -> Scalar:
        (channel, _, *row), last, height = index[: 2 + len(rows)], index[2 + len(rows)], index[3 + len(rows) :]
        found = zero
        for tap, sums in enumerate(columns):
            here = sc.op("eq", sc.index_value(last), sc.index_value(Int(tap)))
            found = sc.masked(here, sums.at((*row, *height, channel)), found)
        return found

    sizes = (*weight.sizes, *heights)
    total = g.lazy(sizes, compute, grad.device, at)
    if heights:
        total = g.reduce(total, range(weight.rank, len(sizes)), "sum", dtype=compute)
    return stored(g, result, grad.device, lambda index: g.convert(total.at(index), weight.dtype))


def _is_depthwise(image: TensorValue, weight: TensorValue, groups: Any) -> bool:
    """Whether there is a channel for each group."""
    alone = weight.sizes[1] is ONE and as_expr(groups) is image.sizes[1] and groups != 1
    return alone and image.dtype.is_floating_point and image.dtype is weight.dtype


def _taps(weight: TensorValue) -> int:
    return math.prod(hint(size) for size in weight.sizes[2:])


def _is_wanted(g: Builder, weight: TensorValue) -> bool:
    """Whether loops take the library's place."""
    config, taps, device = g.context.config, _taps(weight), weight.device
    if config.gemm != "auto" or not device_of(device).libraries.depthwise_is_slow:
        return config.gemm == "generated"
    side_by_side = g.exprs(g.out.stride())[1] is ONE
    faster = not _is_busy(weight.dtype.itemsize, taps) and (side_by_side or _is_asked(config))
    return taps > _MOST_OF_LIBRARIES or faster


def gradients_are_loops(config: Config, device: torch.device, itemsize: int, taps: int, points: int) -> bool:
    """Whether the gradients of a convolution of a channel a group are loops: of ``taps`` elements a window, with ``points`` windows of a channel in all images."""
    if config.gemm != "auto" or not device_of(device).libraries.depthwise_is_slow:
        return config.gemm == "generated"
    faster = taps * points <= _MOST_SUMMED and not _is_busy(itemsize, taps)
    return taps > _MOST_OF_LIBRARIES or (faster and _is_asked(config))


def _is_asked(config: Config) -> bool:
    return config.max_autotune or config.max_autotune_gemm


def _is_busy(itemsize: int, taps: int) -> bool:
    """Whether converting factors of half types keeps the multiprocessors busy for longer than the library takes."""
    return itemsize == 2 and taps > _MOST_OF_HALVES


def _spans(image: TensorValue, points: Sequence[Expr], weight: TensorValue, *moves: Sequence[Any]) -> list[Steps]:
    """The windows that ``points`` look at."""
    taps, *given = (_numbers(values, weight.rank - 2) for values in (weight.sizes[2:], *moves))
    return [Steps(*facts) for facts in zip(image.sizes[2:], points[2:], taps, *given, strict=True)]


def _numbers(given: Sequence[Any], n: int) -> tuple[int, ...]:
    """An argument for each dimension; one for all stands for each."""
    values = [
        int(value) if isinstance(value, int) or (isinstance(value, Expr) and value.is_int) else None for value in given
    ]
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        raise Decline("a window of symbolic size")
    return tuple(found * n if len(found) == 1 else found)


def _share(a: TensorValue) -> float:
    """Of what an element of four bytes costs that is stored. The sums keep the multiprocessors as busy as memory, so that half counts; and what makes the image, a product
    mostly, may do so at no cost in its own kernel."""
    return a.dtype.itemsize / 8


def _by_windows(g: Builder, weight: TensorValue, result: torch.Tensor) -> TensorValue:
    """The weight's elements by places of the window and channel: laid out so where ``result`` has channels side by side."""
    n, sizes = weight.rank - 2, (*weight.sizes[2:], weight.sizes[0])
    view = g.lazy(sizes, weight.dtype, weight.device, lambda i: weight.at((i[n], ZERO, *i[:n])))
    if g.exprs(result.stride())[1] is ONE and math.prod(int(size) for size in sizes[:n]) > 1:
        g.realise(view)
    return view
