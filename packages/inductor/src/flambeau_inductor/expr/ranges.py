"""What is known about an expression's value: its range and comparisons that hold for every value of its symbols.

In: expressions. Out: ``Range``, or True where a comparison always holds (False means "not known", never "known false").
"""

from __future__ import annotations

from functools import lru_cache

from attrs import frozen

from .node import MINUS_ONE, ONE, ZERO, Expr, Int, add, linear, multiply


@frozen
class Range:
    """Inclusive bounds; 2**62 in magnitude means unknown."""

    lo: int
    hi: int


def range_of(e: Expr) -> Range:
    """The values ``e`` can take."""
    return Range(e.lo, e.hi)


def known_nonnegative(e: Expr) -> bool:
    """``e >= 0`` always."""
    return e.lo >= 0 or _lower_bound(e) >= 0


def known_le(a: Expr, b: Expr) -> bool:
    """``a <= b`` always."""
    return a is b or a.hi <= b.lo or known_nonnegative(add(b, multiply(MINUS_ONE, a)))


def known_lt(a: Expr, b: Expr) -> bool:
    """``a < b`` always."""
    return a.hi < b.lo or known_nonnegative(add(add(b, multiply(MINUS_ONE, a)), MINUS_ONE))


def known_eq(a: Expr, b: Expr) -> bool:
    """``a == b`` always."""
    return a is b or add(a, multiply(MINUS_ONE, b)) is ZERO


def known_ne(a: Expr, b: Expr) -> bool:
    """``a != b`` always."""
    return known_lt(a, b) or known_lt(b, a)


@lru_cache(maxsize=1 << 15)
def _lower_bound(e: Expr) -> int:
    """A lower bound that also uses the symbols' symbolic bounds (``i < s0``)."""
    best = e.lo
    current = e
    for _ in range(6):
        replaced = _replace_one_bounded(current)
        if replaced is None:
            return best
        current = replaced
        best = max(best, current.lo)
    return best


def _bound_of(factor: Expr) -> Expr | None:
    """The largest value of ``factor`` as an expression, where one is known."""
    if factor.op == "symbol" and factor.bound is not None and not factor.bound.is_int:
        return add(factor.bound, MINUS_ONE)
    if factor.op == "mod" and factor.args[1].lo > 0 and not factor.args[1].is_int:
        return add(factor.args[1], MINUS_ONE)
    return None


def _replace_one_bounded(e: Expr) -> Expr | None:
    """``e`` with one negatively weighted bounded symbol replaced by its largest value; None when there is none.

    Sound as a lower bound because the other factors of the term are non-negative.
    """
    _, terms = linear(e)
    for term, c in terms:
        if c >= 0:
            continue
        factors = term.args if term.op == "mul" else (term,)
        if any(f.lo < 0 for f in factors):
            continue
        for position, factor in enumerate(factors):
            largest = _bound_of(factor)
            if largest is None:
                continue
            rest: Expr = ONE
            for other in factors[:position] + factors[position + 1 :]:
                rest = multiply(rest, other)
            without = add(e, multiply(Int(-c), term))
            return add(without, multiply(Int(c), multiply(rest, largest)))
    return None
