"""cuDNN's attention by its formulas, for graphs that call it where there is no GPU."""

from __future__ import annotations

import math

import torch
from torch import fx

FORWARD = torch.ops.aten._scaled_dot_product_cudnn_attention.default
BACKWARD = torch.ops.aten._scaled_dot_product_cudnn_attention_backward.default


def spread(q, *others):
    """Keys and values for each head."""
    return [x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in others]


def gathered(x, like):
    """The gradient of what heads share."""
    return x.unflatten(1, (like.shape[1], -1)).sum(2)


def formula(q, k, is_causal, scale):
    scores = q.double() @ k.double().mT * scale
    return scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, -math.inf) if is_causal else scores


class Library(fx.Interpreter):
    """The formulas of the library's attention in float64: sums are natural logarithms, with a last dimension of one."""

    def call_function(self, target, args, kwargs):
        if target is FORWARD:
            q, k, v, bias, with_sums, dropout, is_causal, debug = args
            assert (bias, dropout, debug) == (None, 0, False)
            k, v = spread(q, k, v)
            scores = formula(q, k, is_causal, kwargs["scale"])
            sums = scores.logsumexp(-1, keepdim=True) if with_sums else None
            return scores.softmax(-1) @ v, sums, None, None, q.shape[2], k.shape[2], 0, 0, None
        if target is BACKWARD:
            grad, q, k, v, out, sums, _, _, bias, _, _, queries, keys, dropout, is_causal = args
            assert (bias, dropout, queries, keys) == (None, 0, q.shape[2], k.shape[2])
            keys, values = spread(q, k, v)
            shares = (formula(q, keys, is_causal, kwargs["scale"]) - sums).exp()
            slopes = shares * (grad.double() @ values.mT - (grad * out).sum(-1, keepdim=True)) * kwargs["scale"]
            return slopes @ keys, gathered(slopes.mT @ q.double(), k), gathered(shares.mT @ grad.double(), v)
        return super().call_function(target, args, kwargs)
