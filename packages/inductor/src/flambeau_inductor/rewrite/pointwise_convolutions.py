"""Convolutions of one element a window on a CPU as the products of matrices that they are.

In: a functional graph, layouts assigned. Out: the same graph with ``mm`` or ``addmm`` between views in the place of such convolutions.

With one thread ATen computes such a convolution as a product itself, by MKL. Where MKL's kernels are slow, a product in the graph goes through oneDNN (`packed_products.py`), with a
packed weight where that is frozen; so does a single image that is row-major, without a bias, as ``w @ x``. Measured on one core of an EPYC (Zen 5, torch 2.13), sizes of a ResNet-50 and a
MobileNetV2: 0.42 to 0.56 of the time, where oneDNN's call for convolutions takes 0.45 to 1.46; with packed weights 0.40 to 0.54, and 0.45 to 0.63. Where MKL's kernels are fast, a single
row-major image alone takes less time so: 0.71 to 1.04 on one core of a Xeon (Sapphire Rapids, torch 2.11), 0.9 in the geometric mean; channels-last 0.9 to 2.8.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from .engine import Editor, Match, Rule
from .fakes import is_row_major
from .packed_products import WORK_PLAIN, is_exact
from .patterns import Anything, Like, Operand, call

aten = torch.ops.aten

_ROWS, _IMAGES = (0, 2, 3, 1), (0, 3, 1, 2)


def _is_slow_convolution(match: Match, context: CompileContext) -> bool:
    image, weight, val = match.val("image"), match.val("weight"), match.val()
    sizes = (*image.shape, *weight.shape)
    if not all(isinstance(size, int) for size in sizes):
        return False
    if tuple(weight.shape[2:]) != (1, 1) or not is_row_major(weight.flatten(1)):
        return False
    asked = context.config.conv_1x1_as_mm
    if val[:, 0].numel() * weight.numel() < WORK_PLAIN and not asked:
        return False
    is_slow = asked or device_of(val.device).libraries.slow_products()
    if _is_last(image, val):
        return is_slow
    # With more threads ATen leaves convolutions to oneDNN.
    is_a_product = is_slow or torch.get_num_threads() == 1
    return is_a_product and len(val) == 1 and match["bias"] is None and all(map(is_row_major, (image, val)))


def _is_last(*tensors: torch.Tensor) -> bool:
    return all(is_row_major(tensor.permute(_ROWS)) for tensor in tensors)


def _as_product(match: Match, edit: Editor) -> fx.Node:
    val, weight = match.val(), match.val("weight")
    columns, terms = weight.shape[:2]
    bias = match["bias"]
    matrix = edit.call(aten.view.default, match["weight"], [columns, terms])
    if not _is_last(match.val("image"), val):
        points = edit.call(aten.view.default, match["image"], [terms, -1])
        return edit.call(aten.view.default, edit.call(aten.mm.default, matrix, points), list(val.shape), known=val)
    rows = edit.call(aten.permute.default, match["image"], list(_ROWS))
    left = edit.call(aten.view.default, rows, [-1, terms])
    right = edit.call(aten.permute.default, matrix, [1, 0])
    if bias is None:
        product = edit.call(aten.mm.default, left, right)
    else:
        product = edit.call(aten.addmm.default, bias, left, right)
    points = edit.call(aten.view.default, product, [val.shape[0], *val.shape[2:], columns])
    return edit.call(aten.permute.default, points, list(_IMAGES), known=val)


RULES = (
    Rule(
        name="convolution_of_points_on_a_cpu",
        identity="convolution(x, w, b) = x @ w + b for each point where a window is one element; float32, another order of one sum",
        pattern=call(
            aten.convolution.default,
            Operand("image"),
            Operand("weight"),
            Anything("bias"),
            stride=[1, 1],
            padding=[0, 0],
            transposed=False,
            groups=1,
            others=True,
            like=Like(libraries="packs_weights", dtypes=(torch.float32,), ranks=(4,)),
        ),
        check=_is_slow_convolution,
        replace=_as_product,
        when=is_exact,
    ),
)
