"""Let the library's matrix product do the activation that follows it.

In: a functional graph. Out: the same graph with ``_addmm_activation`` where a product with bias is read by one ReLU (or, where
``numerics="fast"`` allows a single rounding, by one tanh-GELU) and by nothing else, views in between included: a linear layer of a batch of
sequences is a product of matrices between two views. ReLU commutes with rounding, so that is exact.

Measured on an H200 (torch 2.11) over 161 products of 64 to 8,192 rows, 256 to 4,096 terms and 768 to 4,096 columns with a view behind them: the library's
product with ReLU takes 0.52 to 0.95 of the time of product and kernel, 0.76 in the geometric mean, and gives the same bits.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .patterns import Like, Operand, Through, call

aten = torch.ops.aten

#: A product with a row bias, unscaled, whose only reader is the activation, maybe in another shape.
_PRODUCT = Through(
    (aten.view.default, aten._unsafe_view.default, aten.reshape.default),
    call(
        aten.addmm.default,
        Operand("bias", Like(ranks=(1,))),
        Operand("left"),
        Operand("right"),
        name="product",
        like=Like(libraries="takes_activations", dtypes=(torch.float32, torch.float16, torch.bfloat16)),
        only_user=True,
    ),
    name="views",
    most=2,
)


def _may_fuse(context: CompileContext) -> bool:
    return context.config.epilogue_fusion


def _may_round_once(context: CompileContext) -> bool:
    return context.config.epilogue_fusion and context.config.numerics == "fast"


def _with_activation(match: Match, edit: Editor, *, gelu: bool) -> fx.Node:
    operands = (match["bias"], match["left"], match["right"])
    result = edit.call(aten._addmm_activation.default, *operands, use_gelu=gelu, known=match.val("product"))
    for view in reversed(match["views"]):
        result = edit.call(view.target, result, *view.args[1:], known=view.meta["val"])
    return result


def _with_relu(match: Match, edit: Editor) -> fx.Node:
    return _with_activation(match, edit, gelu=False)


def _with_gelu(match: Match, edit: Editor) -> fx.Node:
    return _with_activation(match, edit, gelu=True)


RULES = (
    Rule(
        name="relu_of_a_product",
        identity="relu(round(x)) = round(relu(x)), bit for bit: rounding keeps signs and zero",
        pattern=call(aten.relu.default, _PRODUCT),
        replace=_with_relu,
        when=_may_fuse,
    ),
    Rule(
        name="gelu_of_a_product",
        identity="gelu(x, 'tanh') of the product before it is rounded: one rounding in the place of two, for numerics='fast'",
        pattern=call(aten.gelu.default, _PRODUCT, approximate="tanh"),
        replace=_with_gelu,
        when=_may_round_once,
    ),
)
