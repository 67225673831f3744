"""How the points of one loop nest are found in the space of another.

In: the axes of a nest ``P``, the axes of a target space ``T``, and pairs of index expressions that name the same element of
one buffer (one over P, one over T). Out: candidate bijections, each a dict from P's symbols to expressions over T's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from .. import expr as ex
from ..expr import Expr
from ..ir.layout import product
from ..ir.loops import Axis

Mapping = dict[Expr, Expr | int]


def numel(axes: Sequence[Axis]) -> Expr:
    """How many points the axes span."""
    return product([axis.size for axis in axes])


def strides_of(index: Expr, axes: Sequence[Axis]) -> dict[Expr, Expr] | None:
    """Axis symbol -> stride for the axes that occur in ``index``; None when one does not occur linearly."""
    found: dict[Expr, Expr] = {}
    for axis in axes:
        stride = ex.coefficient(index, axis.symbol)
        if stride is None:
            return None
        if stride is not ex.ZERO:
            found[axis.symbol] = stride
    return found


def _dense(index: Expr, axes: Sequence[Axis]) -> tuple[list[Axis], Expr, Expr] | None:
    """The axes in ``index`` from the largest stride down, if they count through memory without gaps; the unit, the rest."""
    strides = strides_of(index, axes)
    if not strides or any(s.lo <= 0 for s in strides.values()):
        return None
    used = [axis for axis in axes if axis.symbol in strides]
    used.sort(key=lambda axis: (ex.hint(strides[axis.symbol]), ex.hint(axis.size)), reverse=True)
    for high, low in pairwise(used):
        if not ex.known_eq(strides[high.symbol], strides[low.symbol] * low.size):
            return None
    rest = index
    for axis in used:
        rest = rest - strides[axis.symbol] * axis.symbol
    return used, strides[used[-1].symbol], rest


def _radix(position: Expr, axes: Sequence[Axis], mapping: Mapping) -> None:
    """Decompose ``position`` into row-major coordinates of ``axes``."""
    step: Expr = ex.ONE
    for n, axis in reversed(list(enumerate(axes))):
        digit = ex.floor_div(position, step)
        mapping[axis.symbol] = digit if n == 0 else ex.mod(digit, axis.size)
        step = step * axis.size


def _flat(axes: Sequence[Axis]) -> Expr:
    position: Expr = ex.ZERO
    for axis in axes:
        position = position * axis.size + axis.symbol
    return position


def candidates(source: Sequence[Axis], target: Sequence[Axis], pairs: Sequence[tuple[Expr, Expr]]) -> Iterator[Mapping]:
    """Bijections from the points of ``target`` to those of ``source``, the likeliest first."""
    if not ex.known_eq(numel(source), numel(target)):
        return
    if len(source) == len(target) and all(ex.known_eq(a.size, b.size) for a, b in zip(source, target, strict=True)):
        yield {a.symbol: b.symbol for a, b in zip(source, target, strict=True)}
    for there, here in pairs:
        found = _through(there, here, source, target)
        if found is not None:
            yield found
    mapping: Mapping = {}
    _radix(_flat(target), source, mapping)
    yield mapping


def _through(there: Expr, here: Expr, source: Sequence[Axis], target: Sequence[Axis]) -> Mapping | None:
    """The bijection under which ``there`` (over source) is ``here`` (over target); axes in neither match in order."""
    a, b = _dense(there, source), _dense(here, target)
    if a is None or b is None or a[1] is not b[1] or a[2] is not b[2]:
        return None
    if not ex.known_eq(numel(a[0]), numel(b[0])):
        return None
    free_source = [axis for axis in source if axis not in a[0]]
    free_target = [axis for axis in target if axis not in b[0]]
    if not ex.known_eq(numel(free_source), numel(free_target)):
        return None
    mapping: Mapping = {}
    _radix(_flat(b[0]), a[0], mapping)
    _radix(_flat(free_target), free_source, mapping)
    return mapping
