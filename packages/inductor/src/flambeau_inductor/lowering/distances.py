"""Which keys a mask leaves to a query, where the mask follows from positions alone: causal masks, sliding windows.

In: the score of a pair as a scalar over a row's and a column's position. Out: the least and the greatest distance from row to column at which a pair has
a share, and the score of the pairs in between, without the comparisons that hold there. Of scores that are minus infinity outside, nothing is lost;
of scores that are a very small number there, nothing as long as each row keeps a pair that is not: then the others' shares are 0 in eager too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from attrs import field, frozen

from ..expr import Expr, linear
from ..ir import scalar as sc
from ..ir.folding import position_of
from ..ir.scalar import Scalar

#: A score not above this has no share beside any that a model computes; the least numbers of bfloat16 and float32, and -1e9, are what masks are filled with.
_LOWEST = -1e9
_OPPOSITE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_Interval = tuple[float, float]
_EVERYTHING: _Interval = (-math.inf, math.inf)


@frozen
class Window:
    """Pairs of which column less row is from ``low`` to ``high`` (None: without an end) take part; their score is ``inner``. ``known``: comparisons, and
    what they say there. ``reaches``: each row has such a pair."""

    low: int | None
    high: int | None
    inner: Scalar
    known: Mapping[Scalar, bool] = field(factory=dict)
    reaches: bool = True

    def inside(self, value: Scalar) -> Scalar:
        """``value`` without the comparisons that hold for all pairs of the window."""
        return _assuming(value, self.known)

    @property
    def is_far(self) -> bool:
        """Whether the shares of a row may all be those of numbers so small that a factor makes them infinite: what is read is not known."""
        read = any(node.dtype.is_floating_point for node in sc.loads(self.inner))
        return read or any(_is_out(node) and _constant(node) != -math.inf for node in sc.walk(self.inner))


def window_of(score: Scalar, row: Expr, column: Expr, sizes: tuple[int, int]) -> Window:
    """The window of ``score``, a number for each of ``sizes`` rows and columns; one without ends where none is certain."""
    fills: list[float] = []
    found: dict[Scalar, bool] = {}
    low, high = _EVERYTHING
    for comparison, truth in _needed(score, fills):
        interval = _distances(comparison, truth, row, column)
        if interval != _EVERYTHING and found.setdefault(comparison, truth) is truth:
            low, high = max(low, interval[0]), min(high, interval[1])
    inner = _assuming(score, found)
    rows, columns = sizes
    covered = low <= min(high, columns - rows) and high >= 0
    certain = covered and not sc.loads(inner) and not any(_is_out(node) for node in sc.walk(inner))
    if not all(fill == -math.inf for fill in fills) and not certain:
        return Window(None, None, score)
    # An end beyond all pairs is none.
    first = None if low <= 1 - rows else int(low)
    last = None if high >= columns - 1 else int(high)
    return Window(first, last, inner, found, covered)


def _constant(node: Scalar) -> float | None:
    while node.op == "to_dtype":
        node = node.children[0]
    return float(node.args[0]) if node.kind == "constant" else None


def _is_out(node: Scalar) -> bool:
    value = _constant(node)
    return value is not None and value <= _LOWEST


def _needed(node: Scalar, fills: list[float]) -> list[tuple[Scalar, bool]]:
    """Comparisons, and what they say wherever ``node`` is not out. ``fills`` gets what out is."""
    if node.op == "to_dtype":
        return _needed(node.children[0], fills)
    if node.op == "add":
        return [pair for part in node.children for pair in _needed(part, fills)]
    if node.op == "sub":
        return _needed(node.children[0], fills)
    if node.op == "mul":
        return _scaled(node, fills)
    if node.kind != "masked" and node.op != "where":
        return []
    condition, kept, other = node.children
    for value, rest, truth in ((other, kept, True), (kept, other, False)):
        fill = _constant(value)
        if fill is not None and fill <= _LOWEST:
            fills.append(fill)
            return [*_conjuncts(condition, truth), *_needed(rest, fills)]
    return []


def _scaled(node: Scalar, fills: list[float]) -> list[tuple[Scalar, bool]]:
    """Of ``(1 - mask) * lowest`` and ``mask * lowest``: what the truth value is that is taken as a number."""
    for lowest, number in (node.children, node.children[::-1]):
        fill = _constant(lowest)
        if fill is None or fill > _LOWEST or fill == -math.inf:
            continue
        truth = False
        while number.op == "to_dtype" and number.dtype is not torch.bool and number.children[0].dtype is not torch.bool:
            number = number.children[0]
        if number.op == "sub" and _constant(number.children[0]) == 1:
            number, truth = number.children[1], True
        while number.op == "to_dtype":
            number = number.children[0]
        if number.dtype is torch.bool:
            fills.append(fill)
            return _conjuncts(number, truth)
    return []


def _conjuncts(node: Scalar, truth: bool) -> list[tuple[Scalar, bool]]:
    """Comparisons, and what they say wherever ``node`` is ``truth``."""
    if node.op == "logical_not":
        return _conjuncts(node.children[0], not truth)
    if node.op == ("logical_and" if truth else "logical_or"):
        return [pair for part in node.children for pair in _conjuncts(part, truth)]
    if node.op in ("eq", "ne"):
        number, zero = node.children
        if _constant(zero) == 0:
            return _conjuncts(number, truth is (node.op == "ne"))
    if node.op == "to_dtype":
        return _conjuncts(node.children[0], truth)
    if node.kind == "masked" or node.op == "where":
        condition, first, second = node.children
        for constant, other, says in ((second, first, True), (first, second, False)):
            value = _constant(constant)
            if value is not None and bool(value) is not truth:
                return [*_conjuncts(condition, says), *_conjuncts(other, truth)]
        return []
    return [(node, truth)] if node.op in _OPPOSITE else []


def _distances(node: Scalar, truth: bool, row: Expr, column: Expr) -> _Interval:
    """From where to where column less row is where the comparison is ``truth``."""
    name = node.op if truth else _OPPOSITE[node.op]
    left, right = node.children
    if left.op == "abs" and name in ("lt", "le"):
        limit, inner = position_of(right), position_of(left.children[0])
        if limit is None or inner is None or not limit.is_int:
            return _EVERYTHING
        first = _linear(name, inner - limit, row, column)
        second = _linear(name, -inner - limit, row, column)
        if _EVERYTHING in (first, second):
            return _EVERYTHING
        return max(first[0], second[0]), min(first[1], second[1])
    a, b = position_of(left), position_of(right)
    return _EVERYTHING if a is None or b is None else _linear(name, a - b, row, column)


def _linear(name: str, e: Expr, row: Expr, column: Expr) -> _Interval:
    """The same of ``e`` compared with 0."""
    constant, terms = linear(e)
    slopes = dict(terms)
    slope = slopes.get(column, 0)
    if abs(slope) != 1 or slopes.get(row, 0) != -slope or len(slopes) != 2:
        return _EVERYTHING
    strict = name in ("lt", "gt")
    # slope * d + constant < 0, where d is the distance.
    if (slope == 1) is (name in ("lt", "le")):
        return -math.inf, -slope * constant - strict
    return -slope * constant + strict, math.inf


def _assuming(score: Scalar, known: Mapping[Scalar, bool]) -> Scalar:
    def replace(node: Scalar) -> Scalar | None:
        if node in known:
            return sc.constant(known[node], torch.bool)
        if node.op == "logical_not" and node.children[0].kind == "constant":
            return sc.constant(not node.children[0].args[0], torch.bool)
        return None

    return sc.transform(score, replace) if known else score
