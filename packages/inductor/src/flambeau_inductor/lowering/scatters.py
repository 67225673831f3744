"""Writes at computed positions: scatter, scatter_add, index_put, embedding backward.

In: a tensor, integer tensors and values. Out: a stored copy of the tensor with the writes applied by a ``Scatter`` operation; where one element of a row is written among
zeros, a lazy tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import expr as ex
from ..devices import device_of
from ..expr import ONE, ZERO
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.aten import Trait
from ..ops.dtypes import HALVES
from .builder import Builder
from .indexing import NO_ELEMENTS, IndexPlan, check_fits
from .one_hot import is_zero
from .registry import Decline, lowers
from .values import Index, TensorValue, broadcast_index


def _place(a: TensorValue, dim: int, index: TensorValue, i: Index) -> Index:
    d = dim % a.rank
    return (*i[:d], sc.indirect(index.at(i), a.sizes[d], wrap=False), *i[d + 1 :])


def _check(g: Builder, a: TensorValue, dim: int, index: TensorValue, src: TensorValue | None, mode: str) -> None:
    # One without dimensions may stand beside those of one dimension; the library takes it for one element.
    if a.rank == 0 or index.rank != a.rank or (src is not None and src.rank != a.rank):
        raise Decline("0-d")
    if src is not None:
        _check_type(a, src)
    if mode != "set":
        _check_sum(a)
    g.looks_at(index, a.sizes[dim % a.rank], wrap=False)


def _check_sum(a: TensorValue) -> None:
    """Refuse sums that no kernel does as eager does: in a narrow type one by one. On a GPU there are atomics that do."""
    if a.dtype is torch.bool or (a.dtype in HALVES and not device_of(a.device).kernels.adds_halves):
        raise Decline("accumulation in a narrow type")


def _check_type(a: TensorValue, values: TensorValue) -> None:
    """Not every fake compares the types: the library's kernel says which have to be the same."""
    if values.dtype is not a.dtype:
        raise Decline("values of another type")


def _one_each(
    g: Builder, a: TensorValue, dim: int, index: TensorValue, value: Callable[[Index], Scalar]
) -> TensorValue | None:
    """What is zero but for one element along ``dim``, as the gradient of a gather: every element says for itself whether it is that one.
    None for any other scatter."""
    if a.rank == 0 or index.rank != a.rank or a.ref is not None:
        return None
    d = dim % a.rank
    fits = all(k == d or ex.known_eq(n, a.sizes[k]) for k, n in enumerate(index.sizes))
    zero = a.body()
    if index.sizes[d] is not ONE or not fits or not is_zero(zero):
        return None
    g.looks_at(index, a.sizes[d], wrap=False)

    def at(i: Index) -> Scalar:
        place = (*i[:d], ZERO, *i[d + 1 :])
        here = sc.op("eq", g.convert(index.at(place), torch.int64), sc.index_value(i[d]))
        return sc.op("where", here, value(place), zero)

    return g.lazy(a.sizes, a.dtype, a.device, at)


@lowers("scatter.src", traits=Trait.CHANGED_COPY)
def scatter_src(g: Builder, a: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    if src.dtype is a.dtype and src.rank == a.rank and (found := _one_each(g, a, dim, index, src.at)) is not None:
        return found
    _check(g, a, dim, index, src, "set")
    return g.scatter(a, index.sizes, lambda i: _place(a, dim, index, i), src.at, "set")


@lowers("scatter.value", traits=Trait.CHANGED_COPY)
def scatter_value(g: Builder, a: TensorValue, dim: int, index: TensorValue, value: Any) -> TensorValue:
    element = g.constant(value, a.dtype)
    if (found := _one_each(g, a, dim, index, lambda i: element)) is not None:
        return found
    _check(g, a, dim, index, None, "set")
    return g.scatter(a, index.sizes, lambda i: _place(a, dim, index, i), lambda i: element, "set")


@lowers("scatter_add", traits=Trait.CHANGED_COPY)
def scatter_add(g: Builder, a: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    if src.dtype is a.dtype and src.rank == a.rank and (found := _one_each(g, a, dim, index, src.at)) is not None:
        return found
    _check(g, a, dim, index, src, "add")
    return g.scatter(a, index.sizes, lambda i: _place(a, dim, index, i), src.at, "add")


@lowers("index_add", traits=Trait.CHANGED_COPY)
def index_add(
    g: Builder, a: TensorValue, dim: int, index: TensorValue, source: TensorValue, *, alpha: Any = 1
) -> TensorValue:
    if alpha != 1:
        raise Decline("form")
    _check_sum(a)
    return _along(g, a, dim, index, source, "add")


@lowers("index_copy")
def index_copy(g: Builder, a: TensorValue, dim: int, index: TensorValue, source: TensorValue) -> TensorValue:
    return _along(g, a, dim, index, source, "set")


def _along(g: Builder, a: TensorValue, dim: int, index: TensorValue, source: TensorValue, mode: str) -> TensorValue:
    if a.rank == 0 or index.rank != 1 or source.rank != a.rank:
        raise Decline("form")
    if ZERO in a.sizes:
        raise Decline(NO_ELEMENTS)
    _check_type(a, source)
    d = dim % a.rank
    check_fits((*a.sizes[:d], index.sizes[0], *a.sizes[d + 1 :]), source.sizes)
    g.looks_at(index, a.sizes[d], wrap=False)

    def position(i: Index) -> Index:
        return (*i[:d], sc.indirect(index.at((i[d],)), a.sizes[d], wrap=False), *i[d + 1 :])

    return g.scatter(a, source.sizes, position, source.at, mode)


@lowers("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(g: Builder, a: TensorValue, dim: int, index: TensorValue, value: Any) -> TensorValue:
    if a.rank == 0 or index.rank != 1:
        raise Decline("form")
    if ZERO in a.sizes:
        raise Decline(NO_ELEMENTS)
    d = dim % a.rank
    g.looks_at(index, a.sizes[d])
    element = g.convert(value.at(()), a.dtype) if isinstance(value, TensorValue) else g.constant(value, a.dtype)

    def position(i: Index) -> Index:
        return (*i[:d], sc.indirect(index.at((i[d],)), a.sizes[d]), *i[d + 1 :])

    return g.scatter(a, (*a.sizes[:d], index.sizes[0], *a.sizes[d + 1 :]), position, lambda i: element, "set")


@lowers("index_put", traits=Trait.CHANGED_COPY)
@lowers("_unsafe_index_put")
def index_put(
    g: Builder, a: TensorValue, indices: Sequence[TensorValue | None], values: TensorValue, accumulate: bool = False
) -> TensorValue:
    if accumulate:
        _check_sum(a)
    if len(indices) == 1 and indices[0] is not None and indices[0].dtype is torch.bool and not accumulate:
        return _masked_put(g, a, indices[0], values)
    _check_type(a, values)
    plan = IndexPlan(a, indices)
    whole = plan.sizes[max(len(plan.sizes) - values.rank, 0) :]
    check_fits(tuple(w if s is not ONE else s for s, w in zip(values.sizes, whole, strict=False)), values.sizes)
    plan.note(g)

    def value(i: Index) -> Scalar:
        return values.at(broadcast_index(values.sizes, plan.sizes, i))

    return g.scatter(a, plan.sizes, plan.position, value, "add" if accumulate else "set")


def _masked_put(g: Builder, a: TensorValue, mask: TensorValue, values: TensorValue) -> TensorValue:
    """``a[mask] = one value`` is a choice per element."""
    if values.rank:
        raise Decline("boolean mask")
    if mask.sizes != a.sizes[: mask.rank]:
        raise Decline("a mask whose sizes may be others")

    def at(i: Index) -> Scalar:
        return sc.op("where", mask.at(i[: mask.rank]), g.convert(values.at(()), a.dtype), a.at(i))

    return g.lazy(a.sizes, a.dtype, a.device, at)


@lowers("embedding_dense_backward")
def embedding_dense_backward(
    g: Builder, grad: TensorValue, indices: TensorValue, num_weights: Any, padding_idx: Any, scale: bool
) -> TensorValue:
    if scale or grad.dtype in HALVES or grad.rank != indices.rank + 1:
        raise Decline("form")
    width = grad.sizes[-1]
    rows = g.expr(num_weights)
    zero = g.lazy((rows, width), grad.dtype, grad.device, lambda i: g.constant(0, grad.dtype))
    padding = g.expr(padding_idx)

    def position(i: Index) -> Index:
        return (sc.indirect(indices.at(i[:-1]), rows, wrap=False), i[-1])

    def value(i: Index) -> Scalar:
        found = grad.at(i)
        if padding.hi < 0:
            return found
        here = g.convert(indices.at(i[:-1]), torch.int64)
        padded = sc.op("eq", here, sc.index_value(padding))
        return sc.op("where", padded, g.constant(0, grad.dtype), found)

    return g.scatter(zero, grad.sizes, position, value, "add")
