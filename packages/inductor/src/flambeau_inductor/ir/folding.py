"""Integer arithmetic on positions, done while the scalar is built: masks from ``arange`` become plain index expressions.

In: an op's name and operands. Out: what the op is worth, where index expressions and their ranges tell: an ``Expr`` (a position), a
bool, or one of the operands; None where the op stays an op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import expr as ex
from ..expr import Expr

#: Positions beyond these might wrap around in an integer of their type, which expressions do not.
_LIMITS = {torch.int64: 1 << 62, torch.int32: (1 << 31) - 1}

Fold = Callable[..., Any]


def _less(a: Expr, b: Expr) -> bool | None:
    return True if ex.known_lt(a, b) else False if ex.known_le(b, a) else None


def _equal(a: Expr, b: Expr) -> bool | None:
    return True if ex.known_eq(a, b) else False if ex.known_ne(a, b) else None


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


_POSITIONS: dict[str, Fold] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "lt": _less,
    "gt": lambda a, b: _less(b, a),
    "le": lambda a, b: _not(_less(b, a)),
    "ge": lambda a, b: _not(_less(a, b)),
    "eq": _equal,
    "ne": lambda a, b: _not(_equal(a, b)),
}


def fold(name: str, operands: tuple[Any, ...]) -> Any:
    """The simpler value of ``name(*operands)``: an Expr (of the operands' type), a bool, an operand, or None."""
    if name == "where":
        condition, a, b = operands
        if condition.kind == "constant":
            return a if condition.args[0] else b
        return a if a is b else None
    if name in ("logical_and", "logical_or"):
        return _logical(name == "logical_and", *operands)
    if name == "check_bounds":
        position, size = (position_of(part) for part in operands)
        inside = position is not None and size is not None and is_inside(position, size)
        return operands[0] if inside else None
    rule = _POSITIONS.get(name)
    if rule is None:
        return None
    first, second = (position_of(part) for part in operands)
    if first is None or second is None:
        return None
    result = rule(first, second)
    return None if isinstance(result, Expr) and not _fits(result, operands[0].dtype) else result


def _logical(is_and: bool, a: Any, b: Any) -> Any:
    for known, other in ((a, b), (b, a)):
        if known.kind == "constant" and known.dtype is torch.bool and other.dtype is torch.bool:
            return other if known.args[0] is is_and else known
    return None


def are_opposite(a: Any, b: Any) -> bool:
    """Whether one of two comparisons of the same operands holds exactly where the other one does not.

    Integers only: with a NaN neither ``<`` nor ``>=`` holds.
    """
    if a.kind != "op" or b.kind != "op" or (a.op, b.op) not in _OPPOSITES or a.args[1:] != b.args[1:]:
        return False
    return not a.args[1].dtype.is_floating_point


_OPPOSITES = frozenset({("lt", "ge"), ("ge", "lt"), ("gt", "le"), ("le", "gt"), ("eq", "ne"), ("ne", "eq")})


def position_of(node: Any) -> Expr | None:
    """The index expression that an integer is, of 64 bits or of 32, or None."""
    if node.dtype not in _LIMITS or node.kind not in ("index", "constant"):
        return None
    value: Any = ex.Int(node.args[0]) if node.kind == "constant" else node.args[0]
    return value if _fits(value, node.dtype) else None


def _fits(value: Expr, dtype: torch.dtype) -> bool:
    return bool(value.lo > -_LIMITS[dtype] and value.hi < _LIMITS[dtype])


def is_inside(position: Expr, size: Expr) -> bool:
    """Whether ``0 <= position < size`` is certain."""
    return ex.known_le(ex.ZERO, position) and ex.known_lt(position, size)
