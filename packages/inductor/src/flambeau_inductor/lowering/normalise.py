"""Softmax and normalisation layers, forward and backward, as reductions in float32 for half types.

In: tensors. Out: lazy tensors over stored reductions. Intermediate values are not rounded to half precision, because eager's
kernels for these ops keep them in float32 too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..expr import ZERO, Expr
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .builder import Builder
from .reductions import count_of, dims_of, divided, moments
from .registry import Decline, lowers
from .values import Index, TensorValue, compute_dtype
from .views import reshaped


def collapse(index: Index, dims: Sequence[int]) -> Index:
    """``index`` with the dimensions ``dims`` at 0: where a keepdim reduction is read."""
    return tuple(ZERO if d in dims else i for d, i in enumerate(index))


def lazily(g: Builder, like: TensorValue, dtype: torch.dtype, function: Callable[[Index], Scalar]) -> TensorValue:
    """A lazy tensor of ``like``'s shape."""
    return g.lazy(like.sizes, dtype, like.device, lambda index: g.convert(function(index), dtype))


def _softmax_parts(g: Builder, a: TensorValue, dim: int) -> tuple[TensorValue, TensorValue, list[int], torch.dtype]:
    """(x - max, sum of exp of it), in the arithmetic type."""
    if a.rank == 0:
        raise Decline("0-d")
    dims = dims_of(a, dim)
    compute = compute_dtype(a.dtype)
    g.reused(a)
    peak = g.reduce(a, dims, "max", dtype=compute, compute=compute, keepdim=True)
    shifted = lazily(g, a, compute, lambda i: sc.op("sub", g.convert(a.at(i), compute), peak.at(collapse(i, dims))))
    powers = lazily(g, a, compute, lambda i: sc.op("exp", shifted.at(i)))
    total = g.reduce(powers, dims, "sum", dtype=compute, compute=compute, keepdim=True)
    return shifted, total, dims, compute


@lowers("_softmax")
def softmax(g: Builder, a: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    shifted, total, dims, _ = _softmax_parts(g, a, dim)
    dtype = torch.float32 if half_to_float else a.dtype
    return lazily(g, a, dtype, lambda i: sc.op("truediv", sc.op("exp", shifted.at(i)), total.at(collapse(i, dims))))


@lowers("_log_softmax")
def log_softmax(g: Builder, a: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    shifted, total, dims, _ = _softmax_parts(g, a, dim)
    dtype = torch.float32 if half_to_float else a.dtype
    return lazily(g, a, dtype, lambda i: sc.op("sub", shifted.at(i), sc.op("log", total.at(collapse(i, dims)))))


@lowers("_softmax_backward_data")
def softmax_backward(
    g: Builder, grad: TensorValue, out: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    dims = dims_of(grad, dim)
    compute = compute_dtype(grad.dtype)
    wide = lambda t, i: g.convert(t.at(i), compute)  # noqa: E731
    products = lazily(g, grad, compute, lambda i: sc.op("mul", wide(grad, i), wide(out, i)))
    total = g.reduce(products, dims, "sum", dtype=compute, compute=compute, keepdim=True)
    return lazily(
        g,
        grad,
        input_dtype,
        lambda i: sc.op("mul", wide(out, i), sc.op("sub", wide(grad, i), total.at(collapse(i, dims)))),
    )


@lowers("_log_softmax_backward_data")
def log_softmax_backward(
    g: Builder, grad: TensorValue, out: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    dims = dims_of(grad, dim)
    compute = compute_dtype(grad.dtype)
    wide = lambda t, i: g.convert(t.at(i), compute)  # noqa: E731
    total = g.reduce(grad, dims, "sum", dtype=compute, compute=compute, keepdim=True)

    def at(i: Index) -> Scalar:
        return sc.op("sub", wide(grad, i), sc.op("mul", sc.op("exp", wide(out, i)), total.at(collapse(i, dims))))

    return lazily(g, grad, input_dtype, at)


def _inverse_root(g: Builder, variance: Scalar, eps: Any) -> Scalar:
    return sc.op("rsqrt", sc.op("add", variance, g.constant(eps, variance.dtype)))


@lowers("native_layer_norm")
def native_layer_norm(
    g: Builder,
    a: TensorValue,
    normalized_shape: Sequence[Any],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    dims = list(range(a.rank - len(normalized_shape), a.rank))
    compute = compute_dtype(a.dtype)
    assert g.node is not None
    stat_dtype = g.node.meta["val"][1].dtype
    middle, spread = moments(g, a, dims, compute)
    count = count_of(a, dims)
    inverse = lazily(g, spread, compute, lambda i: _inverse_root(g, divided(g, spread.at(i), count), eps))

    def at(i: Index) -> Scalar:
        low = collapse(i, dims)
        value = sc.op("mul", sc.op("sub", g.convert(a.at(i), compute), middle.at(low)), inverse.at(low))
        inner = i[dims[0] :]
        if weight is not None:
            value = sc.op("mul", value, g.convert(weight.at(inner), compute))
        if bias is not None:
            value = sc.op("add", value, g.convert(bias.at(inner), compute))
        return value

    out = lazily(g, a, a.dtype, at)
    stats = [lazily(g, t, stat_dtype, t.at) for t in (middle, inverse)]
    return out, stats[0], stats[1]


@lowers("native_layer_norm_backward")
def native_layer_norm_backward(
    g: Builder,
    grad: TensorValue,
    a: TensorValue,
    normalized_shape: Sequence[Any],
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    mask: Sequence[bool],
) -> tuple[TensorValue | None, TensorValue | None, TensorValue | None]:
    dims = list(range(a.rank - len(normalized_shape), a.rank))
    outer = list(range(a.rank - len(normalized_shape)))
    compute = compute_dtype(a.dtype)
    count = count_of(a, dims)
    wide = lambda t, i: g.convert(t.at(i), compute)  # noqa: E731

    def hat(i: Index) -> Scalar:
        low = collapse(i, dims)
        return sc.op("mul", sc.op("sub", wide(a, i), wide(mean, low)), wide(rstd, low))

    def scaled(i: Index) -> Scalar:
        value = wide(grad, i)
        return value if weight is None else sc.op("mul", value, wide(weight, i[dims[0] :]))

    grad_input = grad_weight = grad_bias = None
    if mask[0]:
        first = g.reduce(lazily(g, a, compute, scaled), dims, "sum", dtype=compute, compute=compute, keepdim=True)
        products = lazily(g, a, compute, lambda i: sc.op("mul", scaled(i), hat(i)))
        second = g.reduce(products, dims, "sum", dtype=compute, compute=compute, keepdim=True)

        def at(i: Index) -> Scalar:
            low = collapse(i, dims)
            inner = sc.op("sub", scaled(i), divided(g, first.at(low), count))
            inner = sc.op("sub", inner, sc.op("mul", hat(i), divided(g, second.at(low), count)))
            return sc.op("mul", inner, wide(rstd, low))

        grad_input = lazily(g, a, a.dtype, at)
    if mask[1] and weight is not None:
        products = lazily(g, a, compute, lambda i: sc.op("mul", wide(grad, i), hat(i)))
        grad_weight = g.reduce(products, outer, "sum", dtype=weight.dtype, compute=compute)
    if mask[2] and bias is not None:
        grad_bias = g.reduce(grad, outer, "sum", dtype=bias.dtype, compute=compute)
    return grad_input, grad_weight, grad_bias


@lowers("_fused_rms_norm")
def fused_rms_norm(
    g: Builder, a: TensorValue, normalized_shape: Sequence[Any], weight: TensorValue | None, eps: float | None
) -> tuple[TensorValue, TensorValue]:
    dims = list(range(a.rank - len(normalized_shape), a.rank))
    compute = compute_dtype(a.dtype)
    assert g.node is not None
    stat_dtype = g.node.meta["val"][1].dtype
    epsilon = torch.finfo(a.dtype).eps if eps is None else eps
    squares = lazily(g, a, compute, lambda i: sc.op("mul", g.convert(a.at(i), compute), g.convert(a.at(i), compute)))
    total = g.reduce(squares, dims, "sum", dtype=compute, compute=compute, keepdim=True)
    count = count_of(a, dims)
    inverse = lazily(g, total, compute, lambda i: _inverse_root(g, divided(g, total.at(i), count), epsilon))

    def at(i: Index) -> Scalar:
        value = sc.op("mul", g.convert(a.at(i), compute), inverse.at(collapse(i, dims)))
        return value if weight is None else sc.op("mul", value, g.convert(weight.at(i[dims[0] :]), compute))

    return lazily(g, a, a.dtype, at), lazily(g, inverse, stat_dtype, inverse.at)


def _channel(t: TensorValue | None, compute: torch.dtype, g: Builder) -> Callable[[Index], Scalar] | None:
    return None if t is None else lambda i: g.convert(t.at((i[1],)), compute)


def _affine(value: Scalar, i: Index, weight: Any, bias: Any) -> Scalar:
    if weight is not None:
        value = sc.op("mul", value, weight(i))
    return value if bias is None else sc.op("add", value, bias(i))


@lowers("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    g: Builder,
    a: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    compute = compute_dtype(a.dtype)
    w, b = _channel(weight, compute, g), _channel(bias, compute, g)

    def at(i: Index) -> Scalar:
        middle, spread = (g.convert(t.at((i[1],)), compute) for t in (running_mean, running_var))
        inverse = sc.op(
            "truediv", sc.constant(1.0, compute), sc.op("sqrt", sc.op("add", spread, g.constant(eps, compute)))
        )
        return _affine(sc.op("mul", sc.op("sub", g.convert(a.at(i), compute), middle), inverse), i, w, b)

    out = lazily(g, a, a.dtype, at)
    out.strides = g.wanted_strides(g.node.meta["val"][0])  # type: ignore[union-attr]
    empty = g.lazy((0,), g.node.meta["val"][1].dtype, a.device, lambda i: g.constant(0, compute))  # type: ignore[union-attr]
    return out, empty, empty


def _group_shape(g: Builder, a: TensorValue, groups: Any) -> TensorValue:
    n, channels = a.sizes[0], a.sizes[1]
    count = g.expr(groups)
    return reshaped(a, (n, count, channels // count, *a.sizes[2:]))


@lowers("native_group_norm")
def native_group_norm(
    g: Builder,
    a: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    n: Any,
    channels: Any,
    spatial: Any,
    groups: Any,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    if a.rank < 2 or any(s.lo < 1 for s in a.sizes):
        raise Decline("possibly empty")
    compute = compute_dtype(a.dtype)
    grouped = _group_shape(g, a, groups)
    dims = list(range(2, grouped.rank))
    middle, spread = moments(g, grouped, dims, compute)
    count = count_of(grouped, dims)
    inverse = lazily(g, spread, compute, lambda i: _inverse_root(g, divided(g, spread.at(i), count), eps))
    w, b = _channel(weight, compute, g), _channel(bias, compute, g)
    per_group: Expr = grouped.sizes[2]

    def at(i: Index) -> Scalar:
        low = (i[0], i[1] // per_group, *([ZERO] * (grouped.rank - 2)))
        return _affine(
            sc.op("mul", sc.op("sub", g.convert(a.at(i), compute), middle.at(low)), inverse.at(low)), i, w, b
        )

    out = lazily(g, a, a.dtype, at)
    stat_dtype = g.node.meta["val"][1].dtype  # type: ignore[union-attr]
    stats = [reshaped(lazily(g, t, stat_dtype, t.at), grouped.sizes[:2]) for t in (middle, inverse)]
    return out, stats[0], stats[1]
