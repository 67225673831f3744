"""Several tensors into one: cat, stack.

In: a list of tensors. Out: a lazy tensor that picks its source by index, or, for many sources, one stored buffer. Rows of products of matrices that
nobody else reads are written by the products into their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import evolve
from torch import fx

from ..expr import ONE, ZERO, Expr, hint
from ..ir import scalar as sc
from ..ir.layout import Layout, Ref
from ..ir.loops import Extern
from ..ir.scalar import Scalar
from .builder import Builder
from .registry import Decline, lowers
from .values import Index, TensorValue, promote
from .views import reshaped

#: More sources than this make a chain of conditions slower than the library's copies.
_MOST_SOURCES = 16
#: Bytes of a result from which on products are written into their places: below, a copy costs less than the more general call.
_LEAST_IN_PLACE = 1 << 20

aten = torch.ops.aten


@lowers("cat")
def cat(g: Builder, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    # A legacy rule of torch: empty 1-d tensors join anything.
    rank = max(t.rank for t in tensors)
    sources = [t for t in tensors if t.rank == rank and not (t.rank == 1 and rank != 1)]
    if len(sources) != len(tensors):
        raise Decline("legacy empty operand")
    if len(sources) > _MOST_SOURCES:
        raise Decline("many operands")
    d = dim + rank if dim < 0 else dim
    if d >= rank:
        raise Decline("only legacy empty operands")
    dtype = promote(*tensors)
    out = g.out
    if dtype is not out.dtype:
        raise Decline("promotion")
    starts: list[Expr] = []
    position: Expr = ZERO
    for source in sources:
        starts.append(position)
        position = position + source.sizes[d]
    if d == 0 and rank == 2 and len(sources) > 1:
        joined = _products_in_place(g, sources, starts)
        if joined is not None:
            return joined

    def at(index: Index) -> Scalar:
        i = index[d]
        result: Scalar | None = None
        for source, start in reversed(list(zip(sources, starts, strict=True))):
            value = g.convert(source.at((*index[:d], i - start, *index[d + 1 :])), dtype)
            end = start + source.sizes[d]
            if result is None:
                # The last source needs only its lower bound, which the outer conditions give; a mask keeps its loads inside.
                lower = sc.op("ge", sc.index_value(i), sc.index_value(start))
                result = sc.masked(lower, value, sc.constant(0, dtype)) if len(sources) > 1 else value
                continue
            below = sc.op("lt", sc.index_value(i), sc.index_value(end))
            if start is not ZERO:
                both = sc.op("logical_and", below, sc.op("ge", sc.index_value(i), sc.index_value(start)))
                result = sc.masked(both, value, result)
            else:
                result = sc.masked(below, value, result)
        assert result is not None
        return result

    joined = g.lazy(g.out_sizes, dtype, out.device, at)
    joined.strides = g.wanted_strides(out)
    return joined


def _products_in_place(g: Builder, sources: Sequence[TensorValue], starts: Sequence[Expr]) -> TensorValue | None:
    """One matrix whose rows products of the library write, where these have no other reader; else None."""
    node = g.node
    given: Any = node.args[0] if node is not None and node.args else ()
    if len(given) != len(sources) or any(not isinstance(a, fx.Node) or [*a.users] != [node] for a in given):
        return None
    layout = Layout.contiguous(g.out_sizes, g.out.dtype, g.out.device)
    if hint(layout.numel) * layout.dtype.itemsize < _LEAST_IN_PLACE or any(
        stride is not wanted for stride, wanted in zip(g.exprs(g.out.stride()), layout.strides, strict=True)
    ):
        return None
    places = [_product_of(g, source, layout) for source in sources]
    if None in places or len({*places}) < len(places):
        return None
    room = g.new_buffer(layout)
    shape, made = (tuple(layout.sizes), tuple(layout.strides)), {"dtype": layout.dtype, "device": layout.device}
    before = room.name
    for at, source, start in sorted(zip(places, sources, starts, strict=True), key=lambda entry: entry[0] or 0):
        assert at is not None
        product: Any = g.operations[at]
        offset = start * layout.strides[0]
        window = Ref(before, source.sizes, layout.strides, offset, layout.dtype, layout.device)
        changed = g.new_buffer(layout, storage=room.name)
        g.operations[at] = evolve(product, op=aten.mm.out, kwargs={"out": window}, outs=(None,), changed=(changed,))
        before = changed.name
    op = aten.empty_strided.default
    first = min(place for place in places if place is not None)
    g.operations.insert(first, Extern(op, shape, made, (room,), (), (), "joined", g.origins))
    return TensorValue.of_ref(Ref.whole(g.buffers[before]))


def _product_of(g: Builder, source: TensorValue, layout: Layout) -> int | None:
    """Where the library's product of matrices stands that makes ``source`` whole, as rows of such a layout."""
    ref = source.ref
    if ref is None or ref.dtype is not layout.dtype or ref != Ref.whole(g.buffers[ref.buffer]):
        return None
    if source.sizes[1] is not layout.sizes[1] or ref.strides != (layout.sizes[1], ONE):
        return None
    for at in range(len(g.operations) - 1, -1, -1):
        operation = g.operations[at]
        if isinstance(operation, Extern) and any(out is not None and out.name == ref.buffer for out in operation.outs):
            return at if operation.op is aten.mm.default and not operation.kwargs else None
    return None


@lowers("stack")
def stack(g: Builder, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    rank = tensors[0].rank + 1
    d = dim + rank if dim < 0 else dim
    lifted = [reshaped(t, (*t.sizes[:d], g.expr(1), *t.sizes[d:])) for t in tensors]
    return cat(g, lifted, d)
