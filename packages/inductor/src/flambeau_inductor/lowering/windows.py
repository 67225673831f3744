"""Where the windows of a pool lie, one dimension at a time.

In: the sizes of a dimension and what the pool says of it. Out: ``Steps`` (windows of one length at even steps) or ``Shares`` (a dimension cut into so
many parts, as adaptive pools do), which say what each window holds, and which windows hold an element. Positions are expressions; whether they are
inside is said by conditions, of which those that always hold are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from attrs import frozen

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, Int
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .registry import Decline


def all_of(conditions: Iterable[Scalar]) -> Scalar:
    """Whether all hold."""
    joined = sc.constant(True, torch.bool)
    for condition in conditions:
        joined = sc.op("logical_and", joined, condition)
    return joined


def _at_least(a: Expr, b: Expr) -> Scalar:
    # Of sizes without a bound, arithmetic of integers may not decide what is known of positions.
    return sc.constant(True, torch.bool) if ex.known_le(b, a) else sc.op("ge", sc.index_value(a), sc.index_value(b))


def _less(a: Expr, b: Expr) -> Scalar:
    return sc.constant(True, torch.bool) if ex.known_lt(a, b) else sc.op("lt", sc.index_value(a), sc.index_value(b))


@frozen
class Steps:
    """``count`` windows over ``size`` elements: window ``o`` has the elements ``o * stride - padding + k * dilation`` for each ``k`` below ``taps``."""

    size: Expr
    count: Expr
    taps: int
    stride: int
    padding: int = 0
    dilation: int = 1

    @property
    def rereads(self) -> float:
        """How many windows hold an element, on average."""
        return self.taps / self.stride

    @property
    def holders(self) -> int:
        """How many windows hold an element, at most."""
        return -(-self._extent // self.stride)

    @property
    def is_whole(self) -> bool:
        """Whether the only window holds every element."""
        known = ex.known_eq(self.size, Int(self.taps)) and self.count is ONE
        return known and self.padding == 0 and self.dilation == 1

    @property
    def _extent(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    def place(self, o: Expr, k: Expr | int) -> Expr:
        """The ``k``-th element of window ``o``."""
        return o * self.stride + (k * self.dilation - self.padding)

    def is_inside(self, o: Expr, k: Expr | int) -> Scalar:
        """Whether there is such an element."""
        place = self.place(o, k)
        return all_of((_at_least(place, ZERO), _less(place, self.size)))

    def length(self, o: Expr) -> Expr:
        """The number of elements in window ``o``; of no dilation."""
        start = o * self.stride - self.padding
        return ex.minimum(start + self.taps, self.size) - ex.maximum(start, ZERO)

    def padded_length(self, o: Expr) -> Expr:
        """The number of elements and paddings in window ``o``, which ends with the padding behind the last element."""
        start = o * self.stride - self.padding
        return ex.minimum(start + self.taps, self.size + self.padding) - start

    def holder(self, h: Expr, j: int) -> Expr:
        """The ``j``-th of the windows that may hold element ``h``, in order."""
        return ex.floor_div(h + self.padding, Int(self.stride)) - (self.holders - 1 - j)

    def holds(self, h: Expr, o: Expr) -> Scalar:
        """Whether ``o``, one of these, is a window that reaches ``h``; of no dilation where an element in between matters."""
        conditions = [_at_least(o, ZERO), _less(o, self.count)]
        if self._extent % self.stride:
            conditions.append(_less(h + self.padding, o * self.stride + self._extent))
        return all_of(conditions)


@frozen
class Shares:
    """``count`` windows that share ``size`` elements: window ``o`` begins at ``o * size // count`` and ends before the next multiple, rounded up."""

    size: Expr
    count: Expr
    taps: int
    holders: int

    @classmethod
    def of(cls, size: Expr, count: Expr) -> Shares:
        """Of sizes that are known. Raises ``Decline``."""
        if not (size.is_int and count.is_int) or not 0 < count.args[0] <= _MOST_SHARES or size is ZERO:
            raise Decline("windows of unknown length")
        length, parts = size.args[0], count.args[0]
        taps = max(-(-(o + 1) * length // parts) - o * length // parts for o in range(parts))
        holders = max(-(-(h + 1) * parts // length) - h * parts // length for h in range(length))
        return cls(size, count, taps, holders)

    @property
    def rereads(self) -> float:
        """How many windows hold an element, on average."""
        return self.taps * self.count.args[0] / self.size.args[0]

    @property
    def is_whole(self) -> bool:
        """Whether the only window holds every element."""
        return self.count is ONE

    def _start(self, o: Expr) -> Expr:
        return ex.floor_div(o * self.size, self.count)

    def _end(self, o: Expr) -> Expr:
        return ex.floor_div((o + 1) * self.size + self.count - 1, self.count)

    def place(self, o: Expr, k: int) -> Expr:
        """The ``k``-th element of window ``o``."""
        return self._start(o) + k

    def is_inside(self, o: Expr, k: int) -> Scalar:
        """Whether the window has so many."""
        return _less(self.place(o, k), self._end(o))

    def length(self, o: Expr) -> Expr:
        """The number of elements in window ``o``."""
        return self._end(o) - self._start(o)

    def holder(self, h: Expr, j: int) -> Expr:
        """The ``j``-th of the windows that may hold element ``h``, in order."""
        return ex.floor_div(h * self.count, self.size) + j

    def holds(self, h: Expr, o: Expr) -> Scalar:
        """Whether ``o``, one of these, holds ``h``."""
        return _less(o, ex.floor_div((h + 1) * self.count + self.size - 1, self.size))


#: Lengths are found by looking at each part.
_MOST_SHARES = 4096

Span: TypeAlias = Steps | Shares


def shares(size: Expr, count: Expr) -> Span:
    """The windows of an adaptive pool: even steps where one size is a multiple of the other. Raises ``Decline``."""
    if size.is_int and count.is_int and count.args[0] > 0 and size.args[0] % count.args[0] == 0 and size is not ZERO:
        length = size.args[0] // count.args[0]
        return Steps(size, count, length, length)
    return Shares.of(size, count)
