"""Reductions and scans.

In: a tensor and dimensions. Out: stored reductions (accumulated in float32 for half types, int64 for integers) with a lazy finish
such as the division of a mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ..devices import device_of
from ..expr import ONE, Expr
from ..ir import scalar as sc
from ..ir.layout import product
from ..ir.scalar import Scalar
from .builder import Builder
from .registry import Decline, lowers
from .values import TensorValue, compute_dtype
from .views import reshaped


def dims_of(a: TensorValue, dim: Any) -> list[int]:
    """A ``dim`` argument (None, int, list; empty list means all) as sorted positions."""
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return list(range(a.rank))
    given = dim if isinstance(dim, tuple | list) else [dim]
    return sorted({int(d) % a.rank if a.rank else 0 for d in given} if a.rank else set())


def count_of(a: TensorValue, dims: Sequence[int]) -> Expr:
    """How many elements each result is made of."""
    return product([a.sizes[d] for d in dims])


def _sum_type(a: TensorValue, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return a.dtype if a.dtype.is_floating_point else torch.int64


def _in_type(g: Builder, a: TensorValue, dtype: torch.dtype | None) -> TensorValue:
    """The elements in the type that was asked for: eager rounds each before it adds them up in a wider one (not those of a mean)."""
    if dtype is None or dtype is a.dtype:
        return a
    return g.lazy(a.sizes, dtype, a.device, lambda index: g.convert(a.at(index), dtype))


@lowers("sum", "sum.dim_IntList")
def sum_(
    g: Builder, a: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    result = _sum_type(a, dtype)
    kind = "any" if result is torch.bool else "sum"
    return g.reduce(_in_type(g, a, dtype), dims_of(a, dim), kind, dtype=result, keepdim=keepdim)


@lowers("prod", "prod.dim_int")
def prod(
    g: Builder, a: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    result = _sum_type(a, dtype)
    kind = "all" if result is torch.bool else "prod"
    return g.reduce(_in_type(g, a, dtype), dims_of(a, dim), kind, dtype=result, keepdim=keepdim)


def divided(g: Builder, total: Scalar, count: Expr) -> Scalar:
    """``total / count`` in the total's type."""
    return sc.op("truediv", total, g.constant(count, total.dtype))


@lowers("mean", "mean.dim")
def mean(
    g: Builder, a: TensorValue, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorValue:
    result = dtype or a.dtype
    if not result.is_floating_point:
        raise Decline("integer mean")
    dims = dims_of(a, dim)
    count = count_of(a, dims)
    return g.reduce(a, dims, "sum", dtype=result, keepdim=keepdim, finish=lambda total: divided(g, total, count))


def _extreme(g: Builder, a: TensorValue, dims: list[int], kind: str, keepdim: bool) -> TensorValue:
    if not all(a.sizes[d].lo > 0 for d in dims):
        raise Decline("possibly empty")
    if a.dtype is torch.bool:
        return g.reduce(a, dims, "any" if kind == "max" else "all", dtype=torch.bool, keepdim=keepdim)
    return g.reduce(a, dims, kind, dtype=a.dtype, keepdim=keepdim)


@lowers("amax")
def amax(g: Builder, a: TensorValue, dim: Any = (), keepdim: bool = False) -> TensorValue:
    return _extreme(g, a, dims_of(a, dim), "max", keepdim)


@lowers("amin")
def amin(g: Builder, a: TensorValue, dim: Any = (), keepdim: bool = False) -> TensorValue:
    return _extreme(g, a, dims_of(a, dim), "min", keepdim)


@lowers("max")
def max_all(g: Builder, a: TensorValue) -> TensorValue:
    return _extreme(g, a, dims_of(a, None), "max", False)


@lowers("min")
def min_all(g: Builder, a: TensorValue) -> TensorValue:
    return _extreme(g, a, dims_of(a, None), "min", False)


def _position(g: Builder, a: TensorValue, dims: list[int], kind: str, keepdim: bool) -> TensorValue:
    if not all(a.sizes[d].lo > 0 for d in dims):
        raise Decline("possibly empty")
    compute = torch.uint8 if a.dtype is torch.bool else compute_dtype(a.dtype)
    return g.reduce(a, dims, kind, dtype=torch.int64, compute=compute, keepdim=keepdim)


@lowers("argmax")
def argmax(g: Builder, a: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    if a.dtype is torch.bool:
        raise Decline("eager refuses bool")
    return _position(g, a, dims_of(a, dim), "argmax", keepdim)


@lowers("argmin")
def argmin(g: Builder, a: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    if a.dtype is torch.bool:
        raise Decline("eager refuses bool")
    return _position(g, a, dims_of(a, dim), "argmin", keepdim)


@lowers("max.dim")
def max_dim(g: Builder, a: TensorValue, dim: int, keepdim: bool = False) -> tuple[TensorValue, TensorValue]:
    dims = dims_of(a, dim)
    return _extreme(g, a, dims, "max", keepdim), _position(g, a, dims, "argmax", keepdim)


@lowers("min.dim")
def min_dim(g: Builder, a: TensorValue, dim: int, keepdim: bool = False) -> tuple[TensorValue, TensorValue]:
    dims = dims_of(a, dim)
    return _extreme(g, a, dims, "min", keepdim), _position(g, a, dims, "argmin", keepdim)


def _truth(g: Builder, a: TensorValue, dim: Any, keepdim: bool, kind: str) -> TensorValue:
    dtype = torch.uint8 if a.dtype is torch.uint8 else torch.bool
    finish = (lambda x: g.convert(x, torch.uint8)) if dtype is torch.uint8 else None
    dims = dims_of(a, dim)
    return g.reduce(a, dims, kind, dtype=dtype, compute=torch.bool, keepdim=keepdim, finish=finish)


@lowers("any", "any.dim", "any.dims")
def any_(g: Builder, a: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
    return _truth(g, a, dim, keepdim, "any")


@lowers("all", "all.dim", "all.dims")
def all_(g: Builder, a: TensorValue, dim: Any = None, keepdim: bool = False) -> TensorValue:
    return _truth(g, a, dim, keepdim, "all")


def moments(g: Builder, a: TensorValue, dims: list[int], compute: torch.dtype) -> tuple[TensorValue, TensorValue]:
    """(mean, sum of squared distances from it) with kept dimensions, both in ``compute``.

    Two passes: as accurate as a running update, and the second pass finds its row in cache or registers.
    """
    count = count_of(a, dims)
    g.reused(a)
    middle = g.reduce(
        a, dims, "sum", dtype=compute, compute=compute, keepdim=True, finish=lambda x: divided(g, x, count)
    )

    def squared(index: tuple[Expr, ...]) -> Scalar:
        at = tuple(g.expr(0) if d in dims else i for d, i in enumerate(index))
        distance = sc.op("sub", g.convert(a.at(index), compute), middle.at(at))
        return sc.op("mul", distance, distance)

    spread = g.lazy(a.sizes, compute, a.device, squared)
    return middle, g.reduce(spread, dims, "sum", dtype=compute, compute=compute, keepdim=True)


def _from_the_first(g: Builder, a: TensorValue, dims: list[int], compute: torch.dtype) -> TensorValue:
    """Distances from the first element of a row: of equal elements they are zero, whose spread is zero as in eager, whatever rounding makes of
    their mean (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983, shifted data)."""
    g.reused(a)

    def distance(index: tuple[Expr, ...]) -> Scalar:
        first = tuple(g.expr(0) if d in dims else i for d, i in enumerate(index))
        return sc.op("sub", g.convert(a.at(index), compute), g.convert(a.at(first), compute))

    return g.lazy(a.sizes, compute, a.device, distance)


def _without(a: TensorValue, dims: list[int], keepdim: bool) -> TensorValue:
    if keepdim:
        return a
    return reshaped(a, tuple(s for d, s in enumerate(a.sizes) if d not in dims))


def _variance(
    g: Builder, a: TensorValue, dim: Any, correction: Any, keepdim: bool, root: bool
) -> tuple[TensorValue, TensorValue]:
    if not a.dtype.is_floating_point:
        raise Decline("not floating point")
    dims = dims_of(a, dim)
    compute = compute_dtype(a.dtype)
    count = count_of(a, dims)
    _, spread = moments(g, _from_the_first(g, a, dims, compute), dims, compute)
    ddof = 1 if correction is None else correction

    def finish(index: tuple[Expr, ...]) -> Scalar:
        left = sc.op("sub", g.constant(count, compute), g.constant(ddof, compute))
        left = sc.op("maximum", left, sc.constant(0, compute))
        value = sc.op("truediv", spread.at(index), left)
        return g.convert(sc.op("sqrt", value) if root else value, a.dtype)

    variance = g.lazy(spread.sizes, a.dtype, a.device, finish)
    mean = g.reduce(a, dims, "sum", dtype=a.dtype, compute=compute, keepdim=True, finish=lambda x: divided(g, x, count))
    return _without(variance, dims, keepdim), _without(mean, dims, keepdim)


@lowers("var.correction")
def var(g: Builder, a: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> TensorValue:
    return _variance(g, a, dim, correction, keepdim, False)[0]


@lowers("std.correction")
def std(g: Builder, a: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> TensorValue:
    return _variance(g, a, dim, correction, keepdim, True)[0]


@lowers("var_mean.correction")
def var_mean(
    g: Builder, a: TensorValue, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[TensorValue, TensorValue]:
    return _variance(g, a, dim, correction, keepdim, False)


@lowers("linalg_vector_norm")
def vector_norm(
    g: Builder,
    a: TensorValue,
    ord: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> TensorValue:
    result = dtype or a.dtype
    if not result.is_floating_point or not isinstance(ord, int | float):
        raise Decline("not floating point")
    dims = dims_of(a, dim)
    compute = compute_dtype(result)

    def lazy(function: Any) -> TensorValue:
        return g.lazy(a.sizes, compute, a.device, lambda i: function(g.convert(a.at(i), compute)))

    # Of single elements eager's kernel gives the magnitudes, whose powers may be too large or too small.
    if ord == 1 or (ord != 0 and all(a.sizes[d] is ONE for d in dims)):
        return g.reduce(lazy(lambda x: sc.op("abs", x)), dims, "sum", dtype=result, compute=compute, keepdim=keepdim)
    if ord == 2:
        return g.reduce(
            lazy(lambda x: sc.op("mul", x, x)),
            dims,
            "sum",
            dtype=result,
            keepdim=keepdim,
            finish=lambda t: sc.op("sqrt", t),
        )
    if ord in (float("inf"), float("-inf")) and all(a.sizes[d].lo > 0 for d in dims):
        kind = "max" if ord > 0 else "min"
        return g.reduce(lazy(lambda x: sc.op("abs", x)), dims, kind, dtype=result, compute=compute, keepdim=keepdim)
    if ord == 0:
        nonzero = lazy(lambda x: g.convert(sc.op("ne", x, sc.constant(0, compute)), compute))
        return g.reduce(nonzero, dims, "sum", dtype=result, compute=compute, keepdim=keepdim)
    if math.isinf(ord):
        raise Decline("possibly empty")
    power, root = sc.constant(ord, compute), sc.constant(1.0 / ord, compute)
    raised = lazy(lambda x: sc.op("pow", sc.op("abs", x), power))
    return g.reduce(raised, dims, "sum", dtype=result, keepdim=keepdim, finish=lambda t: sc.op("pow", t, root))


@lowers("logsumexp")
def logsumexp(g: Builder, a: TensorValue, dim: Any, keepdim: bool = False) -> TensorValue:
    if not a.dtype.is_floating_point or a.rank == 0:
        raise Decline("not floating point")
    dims = dims_of(a, dim)
    if not all(a.sizes[d].lo > 0 for d in dims):
        raise Decline("possibly empty")
    compute = compute_dtype(a.dtype)
    g.reused(a)
    peak = g.reduce(a, dims, "max", dtype=compute, compute=compute, keepdim=True)

    def base(index: tuple[Expr, ...]) -> Scalar:
        # An infinite maximum would give inf - inf.
        value = peak.at(tuple(g.expr(0) if d in dims else i for d, i in enumerate(index)))
        endless = sc.op("eq", sc.op("abs", value), sc.constant(float("inf"), compute))
        return sc.op("where", endless, sc.constant(0, compute), value)

    shifted = g.lazy(
        a.sizes, compute, a.device, lambda i: sc.op("exp", sc.op("sub", g.convert(a.at(i), compute), base(i)))
    )
    total = g.reduce(shifted, dims, "sum", dtype=compute, compute=compute, keepdim=True)
    result = g.lazy(
        total.sizes, a.dtype, a.device, lambda i: g.convert(sc.op("add", sc.op("log", total.at(i)), base(i)), a.dtype)
    )
    return _without(result, dims, keepdim)


def _scan(g: Builder, a: TensorValue, dim: int, kind: str, dtype: torch.dtype | None) -> TensorValue:
    if a.rank == 0:
        raise Decline("0-d")
    result = _sum_type(a, dtype)
    if result is torch.bool:
        raise Decline("running sums of truths, which eager's kernels refuse")
    # As eager, which on the CPU adds float32 up in double precision, half types in float32, and rounds every element once.
    wide = result is torch.float32 and device_of(a.device).eager.accumulates_in_double
    return g.scan(
        _in_type(g, a, dtype), int(dim) % a.rank, kind, result, torch.float64 if wide else compute_dtype(result)
    )


@lowers("cumsum")
def cumsum(g: Builder, a: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(g, a, dim, "sum", dtype)


@lowers("cumprod")
def cumprod(g: Builder, a: TensorValue, dim: int, *, dtype: torch.dtype | None = None) -> TensorValue:
    return _scan(g, a, dim, "prod", dtype)


__all__ = ["ONE", "count_of", "dims_of", "divided", "moments"]
