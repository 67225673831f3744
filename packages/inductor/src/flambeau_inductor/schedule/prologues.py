"""Operands of products that a kernel over points makes, and nothing else reads: computed where the product reads them, never stored.

In: an operand and the kernel that fills its memory. Out: the operand as ``Computed``: weights of fewer bytes that are converted, or scaled. The value is converted
to the operand's type as it is when it is stored, so that it has eager's rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, Int, Symbol
from ..ir.kernel import Computed, KernelBody, Store
from ..ir.layout import Buffer, Ref
from ..ir.scalar import Scalar, indirect_scalars, loads, op, recomputing, substitute, walk

#: Instructions for an element above which it is stored: it may be computed for a few blocks of rows anew.
_MOST_WORK = 16


def computed(ref: Ref, maker: KernelBody, buffers: Mapping[str, Buffer]) -> Computed | None:
    """``ref``, whose sizes are known, in terms of what ``maker`` reads; None where that is no cheap function of the element's place alone."""
    if maker.inner or maker.serial or maker.scalars or len(maker.statements) != 1:
        return None
    (store,) = maker.statements
    made = buffers[ref.buffer]
    plain = isinstance(store, Store) and store.mode == "set" and store.buffer == ref.buffer and not made.in_place
    if not plain or not isinstance(store, Store) or ref.dtype is not made.layout.dtype:
        return None
    axes = tuple(Symbol(name, bound=size) for name, size in zip(("bi", "ki", "xi"), ref.sizes, strict=True))
    place = ref.offset
    for symbol, size, stride in zip(axes, ref.sizes, ref.strides, strict=True):
        place = place + (ZERO if size is ONE else symbol * stride)
    points = _points(maker, store.index, place)
    if points is None:
        return None
    value = substitute(op("to_dtype", store.value, dtype=ref.dtype), points)
    source = _source(value, axes, ref)
    batch, term, column = axes
    return None if source is None else Computed(ref.sizes, (batch, term, column), value, source)


def _points(maker: KernelBody, index: Expr, place: Expr) -> dict[Expr, Expr | int] | None:
    """The maker's axes as expressions of a place in memory, where it fills all of one stretch, each element once."""
    steps: dict[Expr, int] = {}
    for axis in maker.outer:
        step = ex.coefficient(index, axis.symbol)
        if step is None or not step.is_int or not axis.size.is_int:
            return None
        steps[axis.symbol] = int(step)
    total, whole = 1, ZERO
    found: dict[Expr, Expr | int] = {}
    for axis in sorted(maker.outer, key=lambda axis: steps[axis.symbol]):
        if steps[axis.symbol] != total:
            return None
        found[axis.symbol] = ex.mod(ex.floor_div(place, Int(total)), axis.size)
        whole = whole + axis.symbol * total
        total *= int(axis.size)
    return found if index is whole and place.lo >= 0 and place.hi < total else None


def _source(value: Scalar, axes: tuple[Expr, ...], ref: Ref) -> Ref | None:
    """What the value is read from for each element of its own, as that lies; None for a value that is more than a few operations on what lies at places
    in proportion to the element's."""
    for node in walk(value):
        if (
            node.kind not in ("load", "constant", "op")
            or node.op in ("check_bounds", "philox_uniform")
            or indirect_scalars(node)
        ):
            return None
    if recomputing(value, "cuda") > _MOST_WORK:
        return None
    found: list[Ref] = []
    for node in loads(value):
        strides: list[Expr] = []
        rest = node.index
        for symbol in axes:
            stride = ex.coefficient(node.index, symbol)
            if stride is None or not stride.is_int:
                return None
            strides.append(stride)
            rest = rest - symbol * stride
        if not rest.is_int:
            return None
        if all(size is ONE or stride is not ZERO for size, stride in zip(ref.sizes, strides, strict=True)):
            found.append(Ref(node.buffer, ref.sizes, strides, rest, node.dtype, ref.device))
    return max(found, key=lambda source: source.dtype.itemsize, default=None)
