"""Reads at computed positions: gather, index, index_select, embedding.

In: a tensor and integer tensors. Out: lazy tensors whose index holds indirect symbols (wrapped and bounds-checked as eager does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..expr import ONE, ZERO, Expr, hint, known_eq
from ..ir import scalar as sc
from ..ir.layout import Sizes
from ..ir.scalar import Scalar
from .builder import Builder
from .registry import Decline, lowers
from .values import Index, TensorValue, broadcast_index, broadcast_sizes

#: Whether its indices are looked at, the library's kernel says.
NO_ELEMENTS = "indices of a tensor without elements"


@lowers("gather")
def gather(g: Builder, a: TensorValue, dim: int, index: TensorValue, sparse_grad: bool = False) -> TensorValue:
    if a.rank == 0 or index.rank != a.rank:
        raise Decline("0-d")
    d = dim % a.rank
    g.looks_at(index, a.sizes[d], wrap=False)

    def at(i: Index) -> Scalar:
        position = sc.indirect(index.at(i), a.sizes[d], wrap=False)
        return a.at((*i[:d], position, *i[d + 1 :]))

    return g.lazy(index.sizes, a.dtype, a.device, at)


@lowers("index_select")
def index_select(g: Builder, a: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    if a.rank == 0 or index.rank != 1:
        raise Decline("0-d")
    if ZERO in a.sizes:
        raise Decline(NO_ELEMENTS)
    d = dim % a.rank
    sizes = (*a.sizes[:d], index.sizes[0], *a.sizes[d + 1 :])
    g.looks_at(index, a.sizes[d], wrap=False)

    def at(i: Index) -> Scalar:
        return a.at((*i[:d], sc.indirect(index.at((i[d],)), a.sizes[d], wrap=False), *i[d + 1 :]))

    return g.lazy(sizes, a.dtype, a.device, at)


@lowers("embedding")
def embedding(
    g: Builder,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: Any = -1,
    scale: bool = False,
    sparse: bool = False,
) -> TensorValue:
    if weight.rank != 2:
        raise Decline("weight is not 2-d")
    if ZERO in weight.sizes:
        raise Decline(NO_ELEMENTS)
    g.looks_at(indices, weight.sizes[0], wrap=False)

    def at(i: Index) -> Scalar:
        return weight.at((sc.indirect(indices.at(i[:-1]), weight.sizes[0], wrap=False), i[-1]))

    return g.lazy((*indices.sizes, weight.sizes[1]), weight.dtype, weight.device, at)


class IndexPlan:
    """Where advanced indexing reads: shared by ``index`` and ``index_put``.

    ``sizes`` is the shape of the indexed result; ``position(i)`` the element of the indexed tensor for the result's index ``i``.
    """

    def __init__(self, a: TensorValue, indices: Sequence[TensorValue | None]) -> None:
        if any(t is not None and t.dtype in (torch.bool, torch.uint8) for t in indices):
            raise Decline("boolean mask")
        if ZERO in a.sizes:
            raise Decline(NO_ELEMENTS)
        if len(indices) > a.rank:
            raise Decline("more indices than dimensions")
        self.a = a
        self.indices = [*indices, *([None] * (a.rank - len(indices)))]
        self.indexed = [d for d, t in enumerate(self.indices) if t is not None]
        if not self.indexed:
            raise Decline("no index")
        together = self.indexed == list(range(self.indexed[0], self.indexed[-1] + 1))
        self.shape: Sizes = broadcast_sizes(*(t.sizes for t in self.indices if t is not None))
        #: How many plain dimensions come before the indexed ones in the result.
        self.before = self.indexed[0] if together else 0
        plain = [a.sizes[d] for d in range(a.rank) if d not in self.indexed]
        self.sizes: Sizes = (*plain[: self.before], *self.shape, *plain[self.before :])

    def note(self, g: Builder) -> None:
        """Every position that is looked at is checked, but those of an op that promises to be called with good ones."""
        if "_unsafe" in str(g.node and g.node.target):
            return
        for d, t in enumerate(self.indices):
            if t is not None:
                g.looks_at(t, self.a.sizes[d], sizes=self.shape)

    def position(self, i: Index) -> Index:
        """The element of the indexed tensor that result element ``i`` is."""
        inner = i[self.before : self.before + len(self.shape)]
        plain = [*i[: self.before], *i[self.before + len(self.shape) :]]
        result: list[Expr] = []
        for d, t in enumerate(self.indices):
            if t is None:
                result.append(plain.pop(0))
            else:
                value = t.at(broadcast_index(t.sizes, self.shape, inner))
                result.append(sc.indirect(value, self.a.sizes[d]))
        return tuple(result)


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(g: Builder, a: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    plan = IndexPlan(a, indices)
    plan.note(g)
    result = g.lazy(plan.sizes, a.dtype, a.device, lambda i: a.at(plan.position(i)))
    result.strides = g.wanted_strides(g.out)
    return result


def check_fits(wanted: Sizes, sizes: Sizes) -> None:
    """No fake compares these sizes: where changing ones may not fit, the library's kernel says so."""
    if len(wanted) != len(sizes) or not all(map(known_eq, wanted, sizes)):
        raise Decline("values that may be of other sizes")


@lowers("select_scatter")
def select_scatter(g: Builder, a: TensorValue, source: TensorValue, dim: int, index: Any) -> TensorValue:
    d = dim % a.rank
    at_index = g.expr(index)
    if at_index.hi < 0:
        at_index = at_index + a.sizes[d]
    elif at_index.lo < 0:
        raise Decline("index of unknown sign")
    if not 0 <= hint(at_index) < hint(a.sizes[d]):
        raise Decline("an index out of range")
    check_fits((*a.sizes[:d], *a.sizes[d + 1 :]), source.sizes)
    wanted = at_index

    def at(i: Index) -> Scalar:
        here = sc.op("eq", sc.index_value(i[d]), sc.index_value(wanted))
        return sc.op("where", here, g.convert(source.at((*i[:d], *i[d + 1 :])), a.dtype), a.at(i))

    return g.lazy(a.sizes, a.dtype, a.device, at)


@lowers("slice_scatter")
def slice_scatter(
    g: Builder, a: TensorValue, source: TensorValue, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> TensorValue:
    from .views import _bounded

    d = dim % a.rank
    size = a.sizes[d]
    check_fits((*a.sizes[:d], *a.sizes[d + 1 :]), (*source.sizes[:d], *source.sizes[d + 1 :]))
    first, last, by = _bounded(g, start, size, ZERO), _bounded(g, end, size, size), g.expr(step)
    if first is ZERO and last is size and by is ONE:
        return g.lazy(a.sizes, a.dtype, a.device, lambda i: g.convert(source.at(i), a.dtype))

    def at(i: Index) -> Scalar:
        position = i[d]
        conditions = []
        if first is not ZERO:
            conditions.append(sc.op("ge", sc.index_value(position), sc.index_value(first)))
        if last is not size:
            conditions.append(sc.op("lt", sc.index_value(position), sc.index_value(last)))
        if by is not ONE:
            conditions.append(sc.op("eq", sc.index_value((position - first) % by), sc.index_value(ZERO)))
        joined = conditions[0]
        for condition in conditions[1:]:
            joined = sc.op("logical_and", joined, condition)
        value = source.at((*i[:d], (position - first) // by, *i[d + 1 :]))
        return sc.masked(joined, g.convert(value, a.dtype), a.at(i))

    return g.lazy(a.sizes, a.dtype, a.device, at)
