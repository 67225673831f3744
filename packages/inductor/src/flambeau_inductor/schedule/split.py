"""Split reductions that have few results and much to reduce, so that every core has work.

In: one ``Reduction``. Out: the same, or two reductions over a buffer of partial results: the first runs over
``axes + (chunk,)`` in parallel, the second adds the chunks up.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from .. import expr as ex
from ..expr import Expr, Symbol
from ..ir.layout import Buffer, Layout
from ..ir.loops import Axis, Reduction
from ..ir.scalar import Scalar, constant, index_value, load, masked, op, substitute
from .mapping import numel

#: Fewer results than this, with at least ``ENOUGH_WORK`` elements each, are worth a second kernel.
FEW_RESULTS, ENOUGH_WORK = 8, 32768
_IDENTITY: dict[str, Callable[[Scalar], Scalar]] = {
    "sum": lambda v: constant(0, v.dtype),
    "xor_sum": lambda v: constant(0, v.dtype),
    "prod": lambda v: constant(1, v.dtype),
    "any": lambda v: constant(False, v.dtype),
    "all": lambda v: constant(True, v.dtype),
}


def split_reduction(operation: Reduction, fresh: Callable[[], str]) -> tuple[Reduction, Reduction] | None:
    """Two reductions equal to ``operation``, or None where one is as good; ``fresh`` names the buffer between them."""
    if operation.kind not in (*_IDENTITY, "max", "min") or operation.out.layout.device.type != "cpu":
        return None
    if ex.hint(numel(operation.axes)) >= FEW_RESULTS or ex.hint(numel(operation.reduce_axes)) < ENOUGH_WORK:
        return None
    axes = tuple(axis for axis in operation.reduce_axes if axis.size is not ex.ONE)
    dropped: dict[Expr, Expr | int] = {axis.symbol: 0 for axis in operation.reduce_axes if axis.size is ex.ONE}
    value = substitute(operation.value, dropped) if dropped else operation.value
    first = axes[0]
    if len(axes) > 1 and ex.hint(first.size) >= FEW_RESULTS:
        return _two(operation, value, first, axes[1:], fresh())
    parts = _parts(first.size)
    if parts is None and operation.kind not in _IDENTITY:
        return None
    count = parts or 32
    length = ex.floor_div(first.size, ex.Int(count)) if parts else ex.floor_div(first.size + (count - 1), ex.Int(count))
    chunk = Axis(Symbol("chunk", bound=ex.Int(count)), ex.Int(count))
    rest = Axis(Symbol("within", bound=length), length)
    position = chunk.symbol * length + rest.symbol
    value = substitute(value, {first.symbol: position})
    if parts is None:
        inside = op("lt", index_value(position), index_value(first.size))
        value = masked(inside, value, _IDENTITY[operation.kind](value))
    return _two(operation, value, chunk, (rest, *axes[1:]), fresh())


def _parts(size: Expr) -> int | None:
    """How many equal chunks the size divides into, between 4 and 256; the most even answer for small thread counts first."""
    if not size.is_int:
        return None
    n = int(size.args[0])
    return next((p for p in (64, 32, 48, 16, 128, 256, *range(255, 3, -1)) if n % p == 0), None)


def _two(
    operation: Reduction, value: Scalar, chunk: Axis, rest: tuple[Axis, ...], name: str
) -> tuple[Reduction, Reduction]:
    layout = operation.out.layout
    sizes = (*(axis.size for axis in operation.axes), chunk.size)
    partial = Buffer(name, Layout.contiguous(sizes, value.dtype, layout.device))
    first = evolve(operation, out=partial, axes=(*operation.axes, chunk), reduce_axes=rest, value=value)
    at = partial.layout.index([*(axis.symbol for axis in operation.axes), chunk.symbol])
    second = evolve(operation, reduce_axes=(chunk,), value=load(name, at, value.dtype))
    return first, second
