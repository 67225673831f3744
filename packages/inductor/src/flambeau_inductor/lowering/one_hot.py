"""Sums along an axis of which one element counts: the row of a loss's gradient, which is zero but for the target's class.

In: the value at every position of an axis, as a scalar over the axis' symbol. Out: the sum without a loop, or None.

    sum over j of where(j == t and c, v, 0)     where(0 <= t < n and c, v, 0)
    sum over j of (such a value + w)            that + n * w

``c``, ``t``, ``v`` and ``w`` are the same all along the axis. Adding zeros rounds nothing; ``n * w`` is rounded once, where a running sum is
rounded at every step.
"""

from __future__ import annotations

import torch

from .. import expr as ex
from ..expr import Expr
from ..ir import scalar as sc
from ..ir.scalar import Scalar, walk

_SUMS = ("add", "sub")


def sum_along(value: Scalar, axis: Expr, size: Expr) -> Scalar | None:
    """The sum of ``value`` where the symbol ``axis`` runs over ``[0, size)``; None where it takes a loop, or no element is told from others."""
    if not value.dtype.is_floating_point or not _depends(value, axis):
        return None
    chosen = _one(value, axis, size)
    if chosen is not None or value.op not in _SUMS or size.lo < 1:
        return chosen
    found = [_part(part, axis, size) for part in value.children]
    parts = [part for part in found if part is not None]
    return sc.op(value.op, *parts) if len(parts) == len(found) else None


def is_zero(value: Scalar) -> bool:
    """Whether ``value`` is the constant 0, of whatever type."""
    while value.op == "to_dtype":
        (value,) = value.children
    return value.kind == "constant" and value.args[0] == 0


def _part(value: Scalar, axis: Expr, size: Expr) -> Scalar | None:
    """A summand's own sum."""
    if _depends(value, axis):
        return sum_along(value, axis, size)
    return sc.op("mul", value, sc.constant(sc.index_value(size), value.dtype))


def _one(value: Scalar, axis: Expr, size: Expr) -> Scalar | None:
    """The element that is not zero, where there is such a one at most."""
    if value.op == "to_dtype" and value.children[0].dtype.is_floating_point:
        inner = _one(value.children[0], axis, size)
        return None if inner is None else sc.op("to_dtype", inner, dtype=value.dtype)
    if value.op != "where":
        return None
    condition, element, other = value.children
    if not is_zero(other) or _depends(element, axis):
        return None
    found = [(part, _position(part, axis)) for part in _conjuncts(condition)]
    positions = [position for _, position in found if position is not None]
    rest = [part for part, position in found if position is None]
    if len(positions) != 1 or any(_depends(part, axis) for part in rest):
        return None
    (position,) = positions
    inside = sc.op(
        "logical_and", sc.op("ge", position, sc.constant(0, torch.int64)), sc.op("lt", position, sc.index_value(size))
    )
    for part in rest:
        inside = sc.op("logical_and", inside, part)
    return sc.op("where", inside, element, other)


def _conjuncts(condition: Scalar) -> list[Scalar]:
    if condition.op != "logical_and":
        return [condition]
    return [part for child in condition.children for part in _conjuncts(child)]


def _position(condition: Scalar, axis: Expr) -> Scalar | None:
    """What ``condition`` says the axis has to be."""
    if condition.op != "eq" or condition.children[0].dtype is not torch.int64:
        return None
    for place, other in (condition.children, condition.children[::-1]):
        if place.kind == "index" and place.index is axis and not _depends(other, axis):
            return other
    return None


def _depends(value: Scalar, axis: Expr) -> bool:
    return any(axis in ex.free_symbols(e) for node in walk(value) for e in sc.expressions(node))
