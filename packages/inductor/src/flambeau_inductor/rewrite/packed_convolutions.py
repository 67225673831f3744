"""Convolutions with frozen weights on a CPU, through oneDNN's call for weights that it has packed beforehand, with a sum behind them.

In: a functional graph whose frozen inputs are marked (`constants.py`), layouts assigned. Out: the same graph with ``mkldnn::_convolution_pointwise`` in the
place of convolutions that are channels-last and whose weight follows from frozen inputs: its packing does too, so that it is computed once. The call
adds what is added to its result, where its window is more than a point. Its ReLU is not used: that makes 0 of NaN.

Measured on one core of a Sapphire Rapids (torch 2.13), batches of one, beside the channels-last call whose weight is not packed: 0.31 to 1.05 of the
time, 0.8 in the geometric mean; 1.3 for a convolution of 1 x 1 with less than ``_WORK`` multiplications. With a sum: 0.9 to 1.1 of the time without, but 1.2 to 4.2 for
convolutions of 1 x 1, which have slower kernels then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .constants import is_constant
from .engine import Editor, Match, Rule
from .fakes import hint_of, same_layout
from .patterns import Anything, Constant, Like, Operand, call

aten = torch.ops.aten

#: Multiplications below which starting the call costs what packing saves.
_WORK = 1 << 23
_PLAIN: tuple[Any, ...] = ("none", [], "")


def _is_on(context: CompileContext) -> bool:
    return bool(torch.backends.mkldnn.enabled)


def _may_fuse(context: CompileContext) -> bool:
    return _is_on(context) and context.config.epilogue_fusion


def _supported(dtype: torch.dtype) -> bool:
    return dtype is torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _pays(match: Match, context: CompileContext) -> bool:
    image, weight, val = match.val("image"), match.val("weight"), match.val()
    if match["transposed"] or not _supported(val.dtype) or not all(isinstance(size, int) for size in val.shape[1:]):
        return False
    if not all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (image, val)):
        return False
    each = weight.numel() // weight.shape[0]
    work = hint_of(val.shape[0]) * val[0].numel() * each
    return (weight.shape[1] == 1 or work >= _WORK) and is_constant(match["weight"])


def _packed(match: Match, edit: Editor) -> fx.Node:
    image, weight = match.val("image"), match["weight"]
    places = tuple(match[name] for name in ("padding", "stride", "dilation", "groups"))
    sizes = list(image.shape) if all(isinstance(size, int) for size in image.shape) else None
    pack = torch.ops.mkldnn._reorder_convolution_weight.default
    packed = edit.call(pack, weight, *places, sizes, known=weight.meta["val"])
    call_packed = torch.ops.mkldnn._convolution_pointwise.default
    return edit.call(call_packed, match["image"], packed, match["bias"], *places, *_PLAIN, known=match.val())


def _fits(match: Match, context: CompileContext) -> bool:
    """Whether what is added lies as the result does; between convolution and sum nothing is rounded in float32."""
    val = match.val()
    rounds = val.dtype is not torch.float32 and context.config.numerics != "fast"
    alike = all(same_layout(val, match.val(name)) for name in ("other", "convolution"))
    is_point = tuple(match["convolution"].args[1].meta["val"].shape[2:]) == (1, 1)
    return not rounds and alike and not is_point and match["other"] is not match["convolution"]


def _with_sum(match: Match, edit: Editor) -> fx.Node:
    image, weight, bias, *places = match["convolution"].args[:7]
    call_binary = torch.ops.mkldnn._convolution_pointwise.binary
    args = (image, match["other"], weight, bias, *places, "add", 1.0, None, [], None)
    return edit.call(call_binary, *args, known=match.val())


def _rules() -> Iterator[Rule]:
    if not torch.backends.mkldnn.is_available():
        return
    yield Rule(
        name="convolution_with_a_packed_weight",
        identity="convolution(x, w, b) by the library's kernel for packed weights, in another order of its sums",
        pattern=call(
            aten.convolution.default,
            Operand("image"),
            Operand("weight"),
            Anything("bias"),
            Constant("stride"),
            Constant("padding"),
            Constant("dilation"),
            Constant("transposed"),
            Anything(),
            Constant("groups"),
            like=Like(libraries="packs_weights", dtypes=(torch.float32, torch.bfloat16), ranks=(4,)),
        ),
        check=_pays,
        replace=_packed,
        when=_is_on,
    )
    op = torch.ops.mkldnn._convolution_pointwise.default
    given = len(op._schema.arguments) - len(_PLAIN)
    convolution = call(op, *[Anything()] * given, *_PLAIN, name="convolution", only_user=True)
    yield Rule(
        name="sum_with_a_convolution",
        identity="conv(x, w) + y in one kernel; where the type is rounded in between, for numerics='fast'",
        pattern=call(aten.add.Tensor, convolution, Operand("other"), commutes=True),
        check=_fits,
        replace=_with_sum,
        when=_may_fuse,
    )


RULES = tuple(_rules())
