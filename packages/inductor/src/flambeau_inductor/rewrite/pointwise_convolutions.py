"""Convolutions of one element a window as the products of matrices that they are.

In: a functional graph, layouts assigned, biases taken out on a GPU. Out: the same graph with ``mm`` or ``addmm`` between views in the place of such convolutions, channels-last. On a GPU libraries
compute both by the same kernels, but a call of a convolution takes the host several times as long as one of a product, which in networks of small images is longer than the device takes.

On a CPU with one thread ATen computes such a convolution as a product itself, by MKL. Where MKL's kernels are slow, a product in the graph goes through oneDNN (`packed_products.py`), with a
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
from .patterns import Anything, Constant, Like, Operand, call

aten = torch.ops.aten

#: Bytes that rows of both operands are multiples of: else the library has no fast kernel for the product, and may have one for the convolution.
_ALIGNMENT = 16
#: The fewest columns of a float32 product as fast as the convolution. Measured on an H200 (torch 2.11, TF32, 16 images; us of convolution, product): 64 channels to 64 at 56 x 56 8.1,
#: 12.1, 256 to 64 20.5, 23.4, 144 to 24 10.2, 17.6, 16 to 96 at 112 x 112 35.1, 35.0; 15 others to 112 and more 0.98 to 1.03. In bfloat16 0.98 to 1.06 in 20 of 21 whatever their columns, 1.13 in one.
_FEWEST_COLUMNS = 96
_ROWS, _IMAGES = (0, 2, 3, 1), (0, 3, 1, 2)


def _is_product(match: Match, context: CompileContext) -> bool:
    image, weight, val = match.val("image"), match.val("weight"), match.val()
    if any(match["padding"]) or any(step != 1 for step in match["stride"]) or tuple(weight.shape[2:]) != (1, 1):
        return False
    if not all(isinstance(size, int) for tensor in (image, weight) for size in tensor.shape):
        return False
    if not all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (image, val)):
        return False
    aligned = all(size * val.dtype.itemsize % _ALIGNMENT == 0 for size in weight.shape[:2])
    libraries = device_of(val.device).libraries
    wide = val.dtype is not torch.float32 or weight.shape[0] >= _FEWEST_COLUMNS
    same = val.dtype is not torch.float32 or libraries.rounds_products() == libraries.rounds_convolutions()
    return aligned and wide and same and val.numel() > 0


def _is_slow_convolution(match: Match, context: CompileContext) -> bool:
    image, weight, val = match.val("image"), match.val("weight"), match.val()
    sizes = (*image.shape, *weight.shape)
    if not all(isinstance(size, int) for size in sizes):
        return False
    if tuple(weight.shape[2:]) != (1, 1) or not is_row_major(weight.flatten(1)):
        return False
    if val[:, 0].numel() * weight.numel() < WORK_PLAIN:
        return False
    is_slow = device_of(val.device).libraries.slow_products()
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
    bias = match.bindings.values.get("bias")
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
        name="convolution_of_points",
        identity="convolution(x, w) = x @ w for each point where a window is one element, summed and rounded alike",
        pattern=call(
            aten.convolution.default,
            Operand("image"),
            Operand("weight"),
            None,
            stride=Constant("stride"),
            padding=Constant("padding"),
            transposed=False,
            groups=1,
            others=True,
            like=Like(
                libraries="convolutions_start_slowly",
                dtypes=(torch.float32, torch.float16, torch.bfloat16),
                ranks=(4,),
            ),
        ),
        check=_is_product,
        replace=_as_product,
    ),
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
