"""Several tensors into one: cat, stack.

In: a list of tensors. Out: a lazy tensor that picks its source by index, or, for many sources, one stored buffer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import ZERO, Expr
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .builder import Builder
from .registry import Decline, lowers
from .values import Index, TensorValue, promote
from .views import reshaped

#: More sources than this make a chain of conditions slower than the library's copies.
_MOST_SOURCES = 16


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


@lowers("stack")
def stack(g: Builder, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    rank = tensors[0].rank + 1
    d = dim + rank if dim < 0 else dim
    lifted = [reshaped(t, (*t.sizes[:d], g.expr(1), *t.sizes[d:])) for t in tensors]
    return cat(g, lifted, d)
