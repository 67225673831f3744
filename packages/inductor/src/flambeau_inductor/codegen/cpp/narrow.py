"""Which int64 values of a loop body fit 32 bits, so that a register holds twice as many lanes.

In: a scalar node. Out: True when it and every int64 operand below are index arithmetic with a known range inside int32.
"""

from __future__ import annotations

import torch

from ...ir.scalar import Scalar

_LIMIT = 2**31 - 1
Interval = tuple[int, int]


def fits_int32(node: Scalar) -> bool:
    """True when every intermediate of ``node`` fits int32."""
    return interval(node) is not None


def interval(node: Scalar) -> Interval | None:
    """The range of an int64 value made of indices and constants; None when unknown or outside int32."""
    if node.dtype is not torch.int64:
        return None
    if node.kind == "constant":
        return _checked(node.args[0], node.args[0])
    if node.kind == "index":
        return _checked(node.index.lo, node.index.hi)
    if node.kind != "op" or node.op not in ("add", "sub", "mul", "neg", "maximum", "minimum", "where"):
        return None
    parts = [interval(part) for part in node.children if part.dtype is torch.int64]
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    return _combine(node.op, known)


def _combine(name: str, parts: list[Interval]) -> Interval | None:
    a = parts[0]
    if name == "neg":
        return _checked(-a[1], -a[0])
    b = parts[1]
    if name == "add":
        return _checked(a[0] + b[0], a[1] + b[1])
    if name == "sub":
        return _checked(a[0] - b[1], a[1] - b[0])
    if name == "mul":
        corners = [x * y for x in a for y in b]
        return _checked(min(corners), max(corners))
    if name == "maximum":
        return _checked(max(a[0], b[0]), max(a[1], b[1]))
    if name == "minimum":
        return _checked(min(a[0], b[0]), min(a[1], b[1]))
    return _checked(min(a[0], b[0]), max(a[1], b[1]))


def _checked(lo: int, hi: int) -> Interval | None:
    return (lo, hi) if lo >= -_LIMIT and hi <= _LIMIT else None
