"""Comparisons and logic on expressions: values 0 and 1.

In: expressions. Out: ``ONE``/``ZERO`` where decided, else an ``eq ne lt le and or not select`` node.
"""

from __future__ import annotations

from .node import ONE, ZERO, Expr, intern_node
from .ranges import known_eq, known_le, known_lt, known_ne


def eq(a: Expr, b: Expr) -> Expr:
    """1 where equal."""
    if known_eq(a, b):
        return ONE
    return ZERO if known_ne(a, b) else intern_node("eq", (a, b), 0, 1)


def ne(a: Expr, b: Expr) -> Expr:
    """1 where different."""
    return negate(eq(a, b))


def lt(a: Expr, b: Expr) -> Expr:
    """1 where ``a < b``."""
    if known_lt(a, b):
        return ONE
    return ZERO if known_le(b, a) else intern_node("lt", (a, b), 0, 1)


def le(a: Expr, b: Expr) -> Expr:
    """1 where ``a <= b``."""
    if known_le(a, b):
        return ONE
    return ZERO if known_lt(b, a) else intern_node("le", (a, b), 0, 1)


def negate(a: Expr) -> Expr:
    """1 where ``a`` is 0."""
    if a.is_int:
        return ONE if a is ZERO else ZERO
    return a.args[0] if a.op == "not" else intern_node("not", (a,), 0, 1)


def both(a: Expr, b: Expr) -> Expr:
    """1 where both are 1."""
    if a is ZERO or b is ZERO:
        return ZERO
    if a.is_int:
        return b
    return a if b.is_int else intern_node("and", (a, b), 0, 1)


def either(a: Expr, b: Expr) -> Expr:
    """1 where one is 1."""
    return negate(both(negate(a), negate(b)))


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """``a`` where the condition is 1, else ``b``."""
    if condition.is_int:
        return b if condition is ZERO else a
    return a if a is b else intern_node("select", (condition, a, b), min(a.lo, b.lo), max(a.hi, b.hi))
