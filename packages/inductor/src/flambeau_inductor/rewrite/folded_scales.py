"""Convolutions and products with frozen weights that are scaled or shifted by constants: part of the weights and the bias.

In: a functional graph whose frozen inputs are marked (`constants.py`). Out: the same graph with ``convolution(x, w * s, b * s)`` in the place of
``convolution(x, w, b) * s``, likewise for what is added to each channel, where weights, bias and ``s`` follow from frozen inputs. A batch norm in inference is
four such steps after its decomposition, so nothing is left of it; a scale of a layer is one behind a product. The new weights follow from frozen
inputs as well, so that they are computed once.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .constants import is_constant
from .engine import Editor, Match, Rule
from .fakes import same_layout
from .patterns import Anything, Constant, Like, Operand, Through, call

aten = torch.ops.aten

#: Half types would round the product of weight and factor, which eager never forms.
_EXACT_ENOUGH = Like(dtypes=(torch.float32, torch.float64))
_SCALING = (aten.mul.Tensor, aten.div.Tensor)
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def _all_constant(match: Match, *names: str) -> bool:
    return all(match[name] is None or is_constant(match[name]) for name in names)


def _runs_along(val: Any, result: torch.Tensor, dim: int) -> bool:
    """Whether ``val``, broadcast to ``result``, has an element for each place of ``dim`` and the same along the others. A number known at run time is no tensor."""
    if not isinstance(val, torch.Tensor) or val.dtype is not result.dtype or val.dim() > result.dim():
        return False
    sizes: list[Any] = [1] * (result.dim() - val.dim()) + list(val.shape)
    return all(
        isinstance(size, int) and size == (result.shape[place] if place == dim else 1)
        for place, size in enumerate(sizes)
    )


def _is_by_channel(match: Match, context: CompileContext) -> bool:
    val, factor = match["convolution"].meta["val"], match.val("factor")
    if match["transposed"] or not same_layout(val, match.val()) or not _runs_along(factor, val, 1):
        return False
    return _all_constant(match, "weight", "bias", "factor")


def _into_convolution(match: Match, edit: Editor) -> fx.Node:
    op, (image, weight, bias, *rest) = match.root.target, match["convolution"].args
    along = edit.call(aten.view.default, match["factor"], [-1])
    if op in _SCALING:
        each = edit.call(aten.view.default, along, [-1, *[1] * (weight.meta["val"].dim() - 1)])
        weight = edit.call(op, weight, each)
        bias = bias and edit.call(op, bias, along)
    elif bias is not None:
        bias = edit.call(op, bias, along)
    else:
        bias = along if op is aten.add.Tensor else edit.call(aten.neg.default, along)
    return edit.call(aten.convolution.default, image, weight, bias, *rest, known=match["convolution"].meta["val"])


def _is_by_column(match: Match, context: CompileContext) -> bool:
    val = match.root.meta["val"]
    last: fx.Node = match["views"][0] if match["views"] else match["product"]
    columns = match["product"].meta["val"].shape[-1]
    if not same_layout(val, last.meta["val"]) or not isinstance(columns, int) or val.shape[-1] != columns:
        return False
    bias = ("bias",) if "bias" in match.bindings.values else ()
    return _runs_along(match.val("factor"), val, val.dim() - 1) and _all_constant(match, "right", "factor", *bias)


def _into_product(match: Match, edit: Editor) -> fx.Node:
    op, product = match.root.target, match["product"]
    along = edit.call(aten.view.default, match["factor"], [-1])
    *bias, left, right = product.args
    bias = [edit.call(op, each, along) for each in bias]
    result = edit.call(product.target, *bias, left, edit.call(op, right, along), known=product.meta["val"])
    for view in reversed(match["views"]):
        result = edit.call(view.target, result, *view.args[1:], known=view.meta["val"])
    return result


_CONVOLUTION = call(
    aten.convolution.default,
    Operand(),
    Operand("weight"),
    Anything("bias"),
    transposed=Constant("transposed"),
    others=True,
    name="convolution",
    like=_EXACT_ENOUGH,
    only_user=True,
)
_ROW = Operand("bias", Like(ranks=(1,)))
_BIASED = call(aten.addmm.default, _ROW, Operand(), Operand("right"), name="product", like=_EXACT_ENOUGH, only_user=True)  # fmt: skip
_PRODUCT = call(aten.mm.default, Operand(), Operand("right"), name="product", like=_EXACT_ENOUGH, only_user=True)
_FACTOR = Operand("factor")


def _behind(inner: Any, ops: tuple[Any, Any]) -> tuple[Any, Any]:
    """One op in either order of its operands, and one in that order alone."""
    return call(ops[0], inner, _FACTOR, commutes=True), call(ops[1], inner, _FACTOR)


RULES = (
    Rule(
        name="scale_of_a_convolution",
        identity="(conv(x, w) + b) * s = conv(x, w * s) + b * s for each channel; rounded in another order, in float32 and float64",
        pattern=_behind(_CONVOLUTION, _SCALING),
        check=_is_by_channel,
        replace=_into_convolution,
    ),
    Rule(
        name="shift_of_a_convolution",
        identity="conv(x, w) + b + s = conv(x, w) + (b + s) for each channel; rounded in another order, in float32 and float64",
        pattern=_behind(_CONVOLUTION, (aten.add.Tensor, aten.sub.Tensor)),
        check=_is_by_channel,
        replace=_into_convolution,
    ),
    Rule(
        name="scale_of_a_biased_product",
        identity="(x @ w + b) * s = x @ (w * s) + b * s for each column; rounded in another order, in float32 and float64",
        pattern=_behind(Through(_VIEWS, _BIASED, name="views"), _SCALING),
        check=_is_by_column,
        replace=_into_product,
    ),
    Rule(
        name="scale_of_a_product",
        identity="(x @ w) * s = x @ (w * s) for each column; rounded in another order, in float32 and float64",
        pattern=_behind(Through(_VIEWS, _PRODUCT, name="views"), _SCALING),
        check=_is_by_column,
        replace=_into_product,
    ),
)
