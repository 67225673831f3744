"""Views: the same elements under other indices.

In: one tensor. Out: a ``TensorValue`` whose element function maps its index into the base's, and whose ``window`` maps a strided
window on the base to a strided window of the view, so that a view of stored memory stays free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, known_eq, known_le, maximum, minimum
from ..ir import scalar as sc
from ..ir.layout import Ref, Sizes, contiguous_strides, product
from ..ir.loops import Assert
from ..ir.scalar import Scalar
from ..ops.aten import Trait
from .builder import Builder
from .registry import Decline, lowers
from .values import Index, TensorValue

IndexMap = Callable[[Index], Index]


def make_view(base: TensorValue, sizes: Sizes, index_map: IndexMap, window: Callable[[Ref], Ref | None]) -> TensorValue:
    """A view of ``base``: element ``i`` is ``base.at(index_map(i))``."""
    return TensorValue(
        sizes, base.dtype, base.device, lambda index: base.at(index_map(index)), base=base, window=window
    )


def _strided(ref: Ref, sizes: Sequence[Expr], strides: Sequence[Expr], offset: Expr | None = None) -> Ref:
    return Ref(ref.buffer, sizes, strides, ref.offset if offset is None else offset, ref.dtype, ref.device)


def _dim(value: Any, rank: int) -> int:
    d = int(value)
    return d + rank if d < 0 else d


def permuted(base: TensorValue, order: Sequence[int]) -> TensorValue:
    """Dimensions in another order."""
    sizes = tuple(base.sizes[d] for d in order)
    back = {d: n for n, d in enumerate(order)}

    def index_map(index: Index) -> Index:
        return tuple(index[back[d]] for d in range(len(order)))

    return make_view(base, sizes, index_map, lambda r: _strided(r, sizes, [r.strides[d] for d in order]))


@lowers("permute", traits=Trait.MOVES)
def permute(g: Builder, a: TensorValue, dims: Sequence[int]) -> TensorValue:
    return permuted(a, [_dim(d, a.rank) for d in dims])


@lowers("transpose.int", traits=Trait.MOVES)
def transpose(g: Builder, a: TensorValue, first: int, second: int) -> TensorValue:
    if a.rank == 0:
        return a
    order = list(range(a.rank))
    x, y = _dim(first, a.rank), _dim(second, a.rank)
    order[x], order[y] = order[y], order[x]
    return permuted(a, order)


@lowers("t", traits=Trait.MOVES)
def t(g: Builder, a: TensorValue) -> TensorValue:
    return permuted(a, [1, 0]) if a.rank == 2 else a


@lowers("expand", traits=Trait.MOVES)
def expand(g: Builder, a: TensorValue, size: Sequence[Any], *, implicit: bool = False) -> TensorValue:
    return expanded(a, g.out_sizes)


def expanded(a: TensorValue, sizes: Sizes) -> TensorValue:
    """``a`` repeated along new dimensions and dimensions of size one."""
    extra = len(sizes) - a.rank
    repeated = [n < extra or (a.sizes[n - extra] is ONE and sizes[n] is not ONE) for n in range(len(sizes))]

    def index_map(index: Index) -> Index:
        return tuple(ZERO if repeated[n] else index[n] for n in range(extra, len(sizes)))

    def window(ref: Ref) -> Ref:
        return _strided(ref, sizes, [ZERO if repeated[n] else ref.strides[n - extra] for n in range(len(sizes))])

    return make_view(a, sizes, index_map, window)


@lowers("unsqueeze", traits=Trait.MOVES)
def unsqueeze(g: Builder, a: TensorValue, dim: int) -> TensorValue:
    return reshaped(a, g.out_sizes)


@lowers("squeeze", "squeeze.dim", "squeeze.dims", traits=Trait.MOVES)
def squeeze(g: Builder, a: TensorValue, dim: Any = None) -> TensorValue:
    return reshaped(a, g.out_sizes)


@lowers("view", "reshape", traits=Trait.MOVES)
@lowers("_unsafe_view", traits=Trait.HIDDEN_VIEW)
@lowers("_reshape_alias")
def view(g: Builder, a: TensorValue, size: Sequence[Any], stride: Any = None) -> TensorValue:
    return reshaped(a, g.out_sizes)


def _groups(old: Sizes, new: Sizes) -> list[tuple[list[int], list[int]]] | None:
    """Runs of old and new dimensions with equal element counts, outermost first; None where they cannot be paired."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        have, want = ONE, ONE
        if i < len(old):
            left.append(i)
            have, i = old[i], i + 1
        if j < len(new):
            right.append(j)
            want, j = new[j], j + 1
        while not known_eq(have, want):
            if i < len(old) and (j >= len(new) or _comes_first(have, want)):
                left.append(i)
                have, i = have * old[i], i + 1
            elif j < len(new):
                right.append(j)
                want, j = want * new[j], j + 1
            else:
                return None
        groups.append((left, right))
    return groups


def _comes_first(have: Expr, want: Expr) -> bool:
    from ..expr import hint

    return known_le(have, want) or hint(have) < hint(want)


def reshaped(a: TensorValue, sizes: Sizes) -> TensorValue:
    """``a`` with the same elements in row-major order under another shape."""
    groups = _groups(a.sizes, sizes) if all(s.lo > 0 for s in (*a.sizes, *sizes)) else None
    if groups is None:
        groups = [(list(range(a.rank)), list(range(len(sizes))))]

    def index_map(index: Index) -> Index:
        result: list[Expr] = [ZERO] * a.rank
        for left, right in groups:
            _map_group(result, index, left, [a.sizes[d] for d in left], right, [sizes[d] for d in right])
        return tuple(result)

    def window(ref: Ref) -> Ref | None:
        strides: list[Expr] = [ZERO] * len(sizes)
        for left, right in groups:
            if not _window_group(strides, ref, left, right, sizes):
                return None
        return _strided(ref, sizes, strides)

    return make_view(a, sizes, index_map, window)


def _map_group(
    result: list[Expr], index: Index, left: list[int], old: list[Expr], right: list[int], new: list[Expr]
) -> None:
    """Old indices of one group: the new ones linearised, then split again."""
    if len([s for s in old if s is not ONE]) == 1 and len([s for s in new if s is not ONE]) == 1:
        target = next(d for d, s in zip(left, old, strict=True) if s is not ONE)
        source = next(d for d, s in zip(right, new, strict=True) if s is not ONE)
        result[target] = index[source]
        return
    flat: Expr = ZERO
    for d, stride in zip(right, contiguous_strides(new), strict=True):
        flat = flat + index[d] * stride
    strides = contiguous_strides(old)
    for n, (d, size, stride) in enumerate(zip(left, old, strides, strict=True)):
        if size is ONE:
            continue
        outermost = all(s is ONE for s in old[:n])
        result[d] = flat // stride if outermost else (flat // stride) % size


def _window_group(strides: list[Expr], ref: Ref, left: list[int], right: list[int], sizes: Sizes) -> bool:
    """Strides of the new dimensions of one group, where the old ones are evenly spaced."""
    old = [(ref.sizes[d], ref.strides[d]) for d in left if ref.sizes[d] is not ONE]
    new = [d for d in right if sizes[d] is not ONE]
    inner = contiguous_strides([sizes[d] for d in right])
    for n in range(len(old) - 1):
        if not known_eq(old[n][1], old[n + 1][0] * old[n + 1][1]):
            if [s for s, _ in old] == [sizes[d] for d in new]:
                for d, (_, stride) in zip(new, old, strict=True):
                    strides[d] = stride
                _fill_ones(strides, right, sizes)
                return True
            return False
    unit = old[-1][1] if old else ONE
    for d, stride in zip(right, inner, strict=True):
        strides[d] = stride * unit
    return True


def _fill_ones(strides: list[Expr], right: list[int], sizes: Sizes) -> None:
    """A dimension of size one gets the stride a row-major view would have there."""
    following: Expr | None = None
    for d in reversed(right):
        if sizes[d] is ONE:
            strides[d] = following if following is not None else ONE
        following = strides[d] * sizes[d]


def _bounded(g: Builder, value: Any, size: Expr, default: Expr) -> Expr:
    """A slice bound as an expression in ``[0, size]``."""
    if value is None:
        return default
    e = g.expr(value)
    if e.is_int and e.args[0] >= 2**62:
        return size
    if e.hi < 0:
        e = e + size
    elif e.lo < 0:
        e = ex.select(ex.lt(e, ZERO), e + size, e)
    return minimum(maximum(e, ZERO), size)


@lowers("slice.Tensor", traits=Trait.MOVES)
def slice_(g: Builder, a: TensorValue, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> TensorValue:
    d = _dim(dim, a.rank)
    size = a.sizes[d]
    first = _bounded(g, start, size, ZERO)
    by = g.expr(step)
    length = g.out.shape[d]
    if isinstance(length, torch.SymInt) and length.node.expr.is_Symbol and str(length.node.expr) not in g.known_symbols:
        # Fakes do not know on which side of zero a bound is; the program does.
        last = _bounded(g, end, size, size)
        g.symbols.define(length, maximum(last - first + by - 1, ZERO) // by)
    sizes = g.out_sizes
    if first is ZERO and by is ONE and known_eq(sizes[d], size):
        return a

    def index_map(index: Index) -> Index:
        return (*index[:d], first + index[d] * by, *index[d + 1 :])

    def window(ref: Ref) -> Ref:
        strides = [s * by if n == d else s for n, s in enumerate(ref.strides)]
        return _strided(ref, sizes, strides, ref.offset + first * ref.strides[d])

    return make_view(a, sizes, index_map, window)


@lowers("select.int", traits=Trait.MOVES)
def select(g: Builder, a: TensorValue, dim: int, index: Any) -> TensorValue:
    d = _dim(dim, a.rank)
    at = g.expr(index)
    if at.hi < 0:
        at = at + a.sizes[d]
    elif at.lo < 0:
        raise Decline("index of unknown sign")
    sizes = (*a.sizes[:d], *a.sizes[d + 1 :])
    chosen = at
    if not g.is_given(at) and not ex.known_lt(at, a.sizes[d]):
        g.operations.append(Assert(ex.lt(at, a.sizes[d]), "a position lies beyond a tensor", g.origins))

    def index_map(i: Index) -> Index:
        return (*i[:d], chosen, *i[d:])

    def window(ref: Ref) -> Ref:
        strides = (*ref.strides[:d], *ref.strides[d + 1 :])
        return _strided(ref, sizes, strides, ref.offset + chosen * ref.strides[d])

    return make_view(a, sizes, index_map, window)


def narrowed(a: TensorValue, d: int, first: Expr, length: Expr) -> TensorValue:
    """``length`` elements of dimension ``d`` from ``first`` on."""
    sizes = (*a.sizes[:d], length, *a.sizes[d + 1 :])

    def index_map(index: Index) -> Index:
        return (*index[:d], first + index[d], *index[d + 1 :])

    return make_view(a, sizes, index_map, lambda r: _strided(r, sizes, r.strides, r.offset + first * r.strides[d]))


@lowers("split.Tensor", "split_with_sizes", "split.sizes", traits=Trait.MOVES)
def split(g: Builder, a: TensorValue, sizes: Any, dim: int = 0) -> tuple[TensorValue, ...]:
    d = _dim(dim, a.rank)
    assert g.node is not None
    pieces, first = [], ZERO
    for val in g.node.meta["val"]:
        length = g.expr(val.shape[d])
        pieces.append(narrowed(a, d, first, length))
        first = first + length
    return tuple(pieces)


@lowers("chunk", "tensor_split.sections")
def chunk(g: Builder, a: TensorValue, chunks: int, dim: int = 0) -> tuple[TensorValue, ...]:
    return split(g, a, chunks, dim)


@lowers("unbind.int", traits=Trait.MOVES)
def unbind(g: Builder, a: TensorValue, dim: int = 0) -> tuple[TensorValue, ...]:
    d = _dim(dim, a.rank)
    assert g.node is not None
    return tuple(select(g, a, d, n) for n in range(len(g.node.meta["val"])))


@lowers("diagonal")
def diagonal(g: Builder, a: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorValue:
    d1, d2 = _dim(dim1, a.rank), _dim(dim2, a.rank)
    rest = [d for d in range(a.rank) if d not in (d1, d2)]
    sizes = g.out_sizes
    down, right = g.expr(max(-int(offset), 0)), g.expr(max(int(offset), 0))

    def index_map(index: Index) -> Index:
        result: list[Expr] = [ZERO] * a.rank
        for d, e in zip(rest, index[:-1], strict=True):
            result[d] = e
        result[d1], result[d2] = index[-1] + down, index[-1] + right
        return tuple(result)

    def window(ref: Ref) -> Ref:
        strides = [ref.strides[d] for d in rest] + [ref.strides[d1] + ref.strides[d2]]
        return _strided(ref, sizes, strides, ref.offset + down * ref.strides[d1] + right * ref.strides[d2])

    return make_view(a, sizes, index_map, window)


@lowers("unfold", traits=Trait.MOVES)
def unfold(g: Builder, a: TensorValue, dimension: int, size: Any, step: Any) -> TensorValue:
    if a.rank == 0:
        raise Decline("0-d")
    d = _dim(dimension, a.rank)
    by = g.expr(step)
    sizes = g.out_sizes

    def index_map(index: Index) -> Index:
        return (*index[:d], index[d] * by + index[-1], *index[d + 1 : -1])

    def window(ref: Ref) -> Ref:
        strides = [s * by if n == d else s for n, s in enumerate(ref.strides)]
        return _strided(ref, sizes, [*strides, ref.strides[d]])

    return make_view(a, sizes, index_map, window)


@lowers("as_strided", traits=Trait.MOVES | Trait.BY_STRIDES)
def as_strided(g: Builder, a: TensorValue, size: Any, stride: Any, storage_offset: Any = None) -> TensorValue:
    # The argument's own strides matter: it has to lie in memory as eager would have it.
    assert g.node is not None
    ref = g.lying_as(a, g.node.args[0].meta["val"])
    base = g.buffers[ref.buffer].layout
    start = ref.offset
    if storage_offset is not None:
        # Absolute in the storage: an input may begin inside its storage.
        start = g.expr(storage_offset) - base.offset
    sizes = g.exprs(size)
    return TensorValue.of_ref(Ref(ref.buffer, sizes, g.exprs(stride), start, ref.dtype, ref.device))


# Not views in torch, but no more than an index map here.


def _remapped(a: TensorValue, sizes: Sizes, index_map: IndexMap) -> TensorValue:
    return TensorValue(sizes, a.dtype, a.device, lambda index: a.at(index_map(index)))


@lowers("flip")
def flip(g: Builder, a: TensorValue, dims: Sequence[int]) -> TensorValue:
    flipped = {_dim(d, a.rank) for d in dims}

    def index_map(index: Index) -> Index:
        return tuple(a.sizes[d] - 1 - i if d in flipped else i for d, i in enumerate(index))

    return _remapped(a, a.sizes, index_map)


@lowers("roll")
def roll(g: Builder, a: TensorValue, shifts: Sequence[Any], dims: Sequence[int] = ()) -> TensorValue:
    if not dims:
        flat = reshaped(a, (product(a.sizes),))
        return reshaped(roll(g, flat, shifts, (0,)), a.sizes)
    by: dict[int, Expr] = {}
    for shift, dim in zip(shifts, dims, strict=True):
        d = _dim(dim, a.rank)
        by[d] = by.get(d, ZERO) + g.expr(shift)

    def index_map(index: Index) -> Index:
        return tuple((i - by[d]) % a.sizes[d] if d in by else i for d, i in enumerate(index))

    return _remapped(a, a.sizes, index_map)


@lowers("repeat")
def repeat(g: Builder, a: TensorValue, repeats: Sequence[Any]) -> TensorValue:
    sizes = g.out_sizes
    extra = len(sizes) - a.rank

    def index_map(index: Index) -> Index:
        return tuple(
            i if known_eq(a.sizes[d], sizes[d + extra]) else i % a.sizes[d] for d, i in enumerate(index[extra:])
        )

    return _remapped(a, sizes, index_map)


def constant_padded(g: Builder, a: TensorValue, before: Sequence[Expr], sizes: Sizes, fill: Scalar) -> TensorValue:
    """``a`` placed at ``before`` inside a larger (or smaller) tensor of ``fill``."""

    def at(index: Index) -> Scalar:
        inside = tuple(i - b for i, b in zip(index, before, strict=True))
        conditions = []
        for i, size in zip(inside, a.sizes, strict=True):
            if i.lo < 0:
                conditions.append(sc.op("ge", sc.index_value(i), sc.index_value(ZERO)))
            if not known_le(i + 1, size):
                conditions.append(sc.op("lt", sc.index_value(i), sc.index_value(size)))
        value = a.at(inside)
        if not conditions:
            return value
        joined = conditions[0]
        for condition in conditions[1:]:
            joined = sc.op("logical_and", joined, condition)
        return sc.masked(joined, value, fill)

    return g.lazy(sizes, a.dtype, a.device, at)


@lowers("constant_pad_nd")
def constant_pad_nd(g: Builder, a: TensorValue, pad: Sequence[Any], value: Any = 0) -> TensorValue:
    before: list[Expr] = [ZERO] * a.rank
    for n in range(len(pad) // 2):
        before[a.rank - 1 - n] = g.expr(pad[2 * n])
    return constant_padded(g, a, before, g.out_sizes, g.constant(value, a.dtype))
