"""Convolutions in which each channel has a window of its own (depthwise), as loops over the elements of the window.

In: an image, a weight of one channel for each group, moves. Out: a stored result, whose kernel also does what follows it. Memory decides how long such a convolution
takes, and libraries' kernels are far from that: for most windows they want rows of an image side by side, and copy images that are channels-last. All other convolutions
stay with the library, and become kernels of ours later (``schedule/products.py``).

Sums are float32 for half types, and rounded once. Where channels are side by side in memory, so are the elements of the weight that they need: it is laid out by windows first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ..devices import device_of
from ..expr import ONE, ZERO, Expr, Int, as_expr, floor_div
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
    if transposed or n not in (1, 2) or image.rank != weight.rank or not _is_ours(g, image, weight, groups):
        raise Decline(LEFT)
    moves = [_numbers(given, n) for given in (stride, padding, dilation)]
    facts = zip(image.sizes[2:], g.out_sizes[2:], _numbers(weight.sizes[2:], n), *moves, strict=True)
    spans = [Steps(*fact) for fact in facts]
    if math.prod(span.taps for span in spans) > _MOST_TAPS:
        raise Decline("large windows")
    each = floor_div(weight.sizes[0], image.sizes[1])
    compute = compute_dtype(image.dtype)
    plane = ready(g, image, spans)
    elements = _by_windows(g, weight, n)
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


def _is_ours(g: Builder, image: TensorValue, weight: TensorValue, groups: Any) -> bool:
    """Whether there is a channel for each group, and kernels are wanted."""
    config, libraries = g.context.config, device_of(image.device).libraries
    wanted = config.gemm == "generated" or (config.gemm == "auto" and libraries.depthwise_is_slow)
    alone = weight.sizes[1] is ONE and as_expr(groups) is image.sizes[1] and groups != 1
    return wanted and alone and image.dtype.is_floating_point and image.dtype is weight.dtype


def _numbers(given: Sequence[Any], n: int) -> tuple[int, ...]:
    """An argument for each dimension; one for all stands for each."""
    values = [
        int(value) if isinstance(value, int) or (isinstance(value, Expr) and value.is_int) else None for value in given
    ]
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        raise Decline("a window of symbolic size")
    return tuple(found * n if len(found) == 1 else found)


def _by_windows(g: Builder, weight: TensorValue, n: int) -> TensorValue:
    """The weight's elements by places of the window and channel: laid out so where a result has channels side by side."""
    sizes = (*weight.sizes[2:], weight.sizes[0])
    view = g.lazy(sizes, weight.dtype, weight.device, lambda i: weight.at((i[n], ZERO, *i[:n])))
    if g.exprs(g.out.stride())[1] is ONE and math.prod(int(size) for size in sizes[:n]) > 1:
        g.realise(view)
    return view
