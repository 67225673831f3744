"""Gradients of losses that torch's own decomposition writes as a scatter: here every element computes itself.

In: the gradient, the scores and the targets. Out: a lazy tensor, so that it joins the kernel of the softmax behind it and nothing
of the size of the scores is stored twice.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .builder import Builder
from .normalise import lazily
from .registry import Decline, lowers
from .values import Index, TensorValue, compute_dtype

_MEAN = 1


@lowers("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(
    g: Builder,
    grad: TensorValue,
    a: TensorValue,
    target: TensorValue,
    weight: TensorValue | None,
    reduction: int,
    ignore_index: Any,
    total_weight: TensorValue,
) -> TensorValue:
    """``-weight[target] * grad`` (over the total weight for a mean) at the target's class, zero elsewhere."""
    if a.rank == 0 or target.rank != a.rank - 1 or grad.rank not in (0, target.rank):
        raise Decline("form")
    channel = min(a.rank - 1, 1)
    compute = compute_dtype(a.dtype)
    ignored = sc.index_value(g.expr(ignore_index))

    def each(i: Index) -> Scalar:
        value = g.convert(grad.at(i if grad.rank else ()), compute)
        if reduction == _MEAN:
            value = sc.op("truediv", value, g.convert(total_weight.at(()), compute))
        return g.convert(g.convert(value, a.dtype), compute)

    def at(i: Index) -> Scalar:
        position = (*i[:channel], *i[channel + 1 :])
        chosen = g.convert(target.at(position), torch.int64)
        here = sc.op("logical_and", sc.op("eq", chosen, sc.index_value(i[channel])), sc.op("ne", chosen, ignored))
        value = each(position)
        if weight is not None:
            value = sc.op("mul", value, g.convert(weight.at((i[channel],)), compute))
        return sc.op("where", here, sc.op("neg", value), g.constant(0, compute))

    return lazily(g, a, a.dtype, at)
