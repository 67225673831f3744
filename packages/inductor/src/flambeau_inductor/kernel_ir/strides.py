"""How an index moves from lane to lane.

In: an index of a kernel whose blocks are lanes of a register, along one tile. Out: the constant step between neighbours, by which an access is one
of a stretch of memory, or goes from lane to lane.
"""

from __future__ import annotations

from ..expr import ONE, ZERO, Expr, coefficient
from .values import Arith, Index, Lanes, Node, Variable


def lane_step(index: Node) -> Expr | None:
    """The step, in the symbols of ``index``; None where there is no constant one."""
    if isinstance(index, Index):
        return _of_expression(index)
    if isinstance(index, Variable | Lanes):
        return ONE if index.tiles else ZERO
    if isinstance(index, Arith) and index.op in ("add", "sub"):
        left, right = lane_step(index.left), lane_step(index.right)
        return left if right is ZERO else right if left is ZERO and index.op == "add" else None
    return None if index.tiles else ZERO


def _of_expression(index: Index) -> Expr | None:
    position: Expr | None = None
    for symbol, part in index.names:
        if part.tiles:
            if position is not None or not isinstance(part, Variable):
                return None
            position = symbol
    return ZERO if position is None else coefficient(index.expression, position)
