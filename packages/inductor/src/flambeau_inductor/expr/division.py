"""Floor division, modulo, minimum and maximum on expressions, as tables of rules.

In: two expressions in normal form. Out: the simplest equal expression the rules find. A rule is a function ``(a, b) ->
Expr | None``; None means "does not apply". Rules hold for every integer value inside the symbols' ranges, with Python's
floor semantics. Order matters: the first rule that answers wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from .node import (
    MINUS_ONE,
    ONE,
    UNBOUNDED,
    ZERO,
    Expr,
    Int,
    add,
    from_linear,
    intern_node,
    linear,
    monomial,
    multiply,
    register_operation,
)
from .ranges import known_le, known_lt, known_nonnegative

Rule = Callable[[Expr, Expr], "Expr | None"]


def _both_integers_div(a: Expr, b: Expr) -> Expr | None:
    return Int(a.args[0] // b.args[0]) if a.is_int and b.is_int and b is not ZERO else None


def _both_integers_mod(a: Expr, b: Expr) -> Expr | None:
    return Int(a.args[0] % b.args[0]) if a.is_int and b.is_int and b is not ZERO else None


def _zero_numerator(a: Expr, b: Expr) -> Expr | None:
    # 0 // b == 0 % b == 0 (b == 0 would be an error at run time in eager too).
    return ZERO if a is ZERO else None


def _unit_divisor_div(a: Expr, b: Expr) -> Expr | None:
    # a // 1 == a, a // -1 == -a
    if b is ONE:
        return a
    return multiply(MINUS_ONE, a) if b is MINUS_ONE else None


def _unit_divisor_mod(a: Expr, b: Expr) -> Expr | None:
    # a % 1 == a % -1 == 0
    return ZERO if b is ONE or b is MINUS_ONE else None


def _same_div(a: Expr, b: Expr) -> Expr | None:
    # b // b == 1 for b > 0
    return ONE if a is b and b.lo > 0 else None


def _within_div(a: Expr, b: Expr) -> Expr | None:
    # 0 <= a < b  =>  a // b == 0
    return ZERO if known_nonnegative(a) and known_lt(a, b) else None


def _within_mod(a: Expr, b: Expr) -> Expr | None:
    # 0 <= a < b  =>  a % b == a
    return a if known_nonnegative(a) and known_lt(a, b) else None


def divide_exactly(e: Expr, by: Expr) -> Expr | None:
    """``e / by`` when every term of the polynomial ``e`` is a multiple of the monomial ``by``, else None."""
    by_constant, by_terms = linear(by)
    if by_terms and (by_constant or len(by_terms) > 1):
        return ONE if e is by else _divide_by_sum(e, by)
    factors: tuple[Expr, ...] = ()
    scale = by_constant
    if by_terms:
        term, scale = by_terms[0]
        factors = term.args if term.op == "mul" else (term,)
    if scale == 0:
        return None
    constant, terms = linear(e)
    if constant % scale or (constant and factors):
        return None
    quotient: Expr = Int(constant // scale)
    for term, c in terms:
        rest = _remove_factors(term, factors)
        if rest is None or c % scale:
            return None
        quotient = add(quotient, multiply(Int(c // scale), rest))
    return quotient


def _divide_by_sum(e: Expr, by: Expr) -> Expr | None:
    """Polynomial long division by a sum with several terms; exact or nothing."""
    quotient, rest = ZERO, e
    _, by_terms = linear(by)
    lead, lead_coefficient = max(by_terms, key=lambda item: (len(_factors(item[0])), item[0].key))
    for _ in range(8):
        if rest is ZERO:
            return quotient
        step = None
        for term, c in linear(rest)[1]:
            remaining = _remove_factors(term, _factors(lead))
            if remaining is not None and c % lead_coefficient == 0:
                step = multiply(Int(c // lead_coefficient), remaining)
                break
        if step is None:
            return None
        quotient = add(quotient, step)
        rest = add(rest, multiply(MINUS_ONE, multiply(step, by)))
    return None


def _factors(term: Expr) -> tuple[Expr, ...]:
    return term.args if term.op == "mul" else (term,)


def _remove_factors(term: Expr, factors: tuple[Expr, ...]) -> Expr | None:
    have = list(_factors(term))
    for factor in factors:
        if factor not in have:
            return None
        have.remove(factor)
    return monomial(have)


def _split(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """``a == quotient * b + rest`` where ``quotient`` gathers the terms that are multiples of ``b``."""
    constant, terms = linear(a)
    quotient, rest = ZERO, ZERO
    if b.is_int:
        n = b.args[0]
        q_terms, r_terms = [], []
        for term, c in terms:
            whole, left = divmod(c, n)
            # Keep the remainder's sign where it makes the range small: only whole multiples move.
            if left == 0:
                q_terms.append((term, whole))
            else:
                r_terms.append((term, c))
        return from_linear(constant // n, q_terms), from_linear(constant % n, r_terms)
    pieces = [(Int(constant), constant)] if constant else []
    for term, c in terms:
        piece = multiply(Int(c), term)
        whole = divide_exactly(piece, b)
        if whole is None:
            rest = add(rest, piece)
        else:
            quotient = add(quotient, whole)
    for piece, _ in pieces:
        rest = add(rest, piece)
    return quotient, rest


def _move_multiples_div(a: Expr, b: Expr) -> Expr | None:
    # (q*b + r) // b == q + r // b   (b != 0)
    if not _nonzero(b):
        return None
    quotient, rest = _split(a, b)
    if quotient is ZERO:
        whole = divide_exactly(a, b)
        return whole
    return add(quotient, floor_div(rest, b))


def _drop_multiples_mod(a: Expr, b: Expr) -> Expr | None:
    # (q*b + r) % b == r % b
    if not _nonzero(b):
        return None
    quotient, rest = _split(a, b)
    if quotient is ZERO:
        return ZERO if divide_exactly(a, b) is not None else None
    return mod(rest, b)


def _nonzero(b: Expr) -> bool:
    return b.lo > 0 or b.hi < 0


def _common_part(a: Expr, b: Expr) -> tuple[int, Expr, Expr] | None:
    """``(g, x, r)`` with ``a == g*x + r``, ``0 <= r < g``, g > 1 dividing the integer ``b``; None where there is
    none."""
    if not b.is_int or b.args[0] <= 1:
        return None
    n = b.args[0]
    constant, terms = linear(a)
    for g in sorted({math.gcd(c, n) for _, c in terms}, reverse=True):
        if g <= 1:
            continue
        multiples = [(t, c // g) for t, c in terms if c % g == 0]
        rest = from_linear(constant % g, [(t, c) for t, c in terms if c % g])
        if rest.lo >= 0 and rest.hi < g:
            return g, from_linear(constant // g, multiples), rest
    return None


def _reduce_common_div(a: Expr, b: Expr) -> Expr | None:
    # (g*x + r) // (g*d) == x // d  where 0 <= r < g
    parts = _common_part(a, b)
    if parts is None:
        return None
    g, x, _ = parts
    return floor_div(x, Int(b.args[0] // g))


def _reduce_common_mod(a: Expr, b: Expr) -> Expr | None:
    # (g*x + r) % (g*d) == g*(x % d) + r  where 0 <= r < g
    parts = _common_part(a, b)
    if parts is None:
        return None
    g, x, rest = parts
    return add(multiply(Int(g), mod(x, Int(b.args[0] // g))), rest)


def _symbolic_common(a: Expr, b: Expr) -> tuple[Expr, Expr, Expr, Expr] | None:
    """``(g, x, r, d)`` with ``a == g*x + r``, ``b == g*d``, ``0 <= r < g`` and g one symbolic factor group of ``b``."""
    if b.op != "mul" and not (b.op == "add" and b.args[0] == 0 and len(b.args[1]) == 1):
        return None
    term, scale = linear(b)[1][0]
    candidates = [factor for factor in _factors(term) if factor.lo > 0]
    if scale > 1:
        candidates.append(Int(scale))
    for g in candidates:
        quotient, rest = _split(a, g)
        if quotient is ZERO or not (known_nonnegative(rest) and known_lt(rest, g)):
            continue
        d = divide_exactly(b, g)
        if d is not None:
            return g, quotient, rest, d
    return None


def _symbolic_common_div(a: Expr, b: Expr) -> Expr | None:
    # (g*x + r) // (g*d) == x // d with symbolic g > 0
    parts = _symbolic_common(a, b)
    return None if parts is None or parts[3] is b else floor_div(parts[1], parts[3])


def _symbolic_common_mod(a: Expr, b: Expr) -> Expr | None:
    # (g*x + r) % (g*d) == g*(x % d) + r with symbolic g > 0
    parts = _symbolic_common(a, b)
    return None if parts is None or parts[3] is b else add(multiply(parts[0], mod(parts[1], parts[3])), parts[2])


def _nested_div(a: Expr, b: Expr) -> Expr | None:
    # (x // m) // n == x // (m*n) for m, n > 0
    if a.op == "floordiv" and a.args[1].lo > 0 and b.lo > 0:
        return floor_div(a.args[0], multiply(a.args[1], b))
    return None


def _nested_mod(a: Expr, b: Expr) -> Expr | None:
    # (x % (n*k)) % n == x % n ; inside a sum too: (c*(x % (n*k)) + r) % n == (c*x + r) % n
    if b.lo <= 0:
        return None
    constant, terms = linear(a)
    changed = False
    result: Expr = Int(constant)
    for term, c in terms:
        if term.op == "mod" and divide_exactly(multiply(Int(c), term.args[1]), b) is not None:
            result = add(result, multiply(Int(c), term.args[0]))
            changed = True
        else:
            result = add(result, multiply(Int(c), term))
    return mod(result, b) if changed and result is not a else None


def _mod_under_div(a: Expr, b: Expr) -> Expr | None:
    # (x % (n*k)) // n == (x // n) % k for n, k > 0
    if a.op == "mod" and b.lo > 0 and a.args[1].lo > 0:
        k = divide_exactly(a.args[1], b)
        if k is not None and k.lo > 0:
            return mod(floor_div(a.args[0], b), k)
    return None


_DIV_RULES: tuple[Rule, ...] = (
    _both_integers_div,
    _unit_divisor_div,
    _zero_numerator,
    _same_div,
    _within_div,
    _move_multiples_div,
    _reduce_common_div,
    _symbolic_common_div,
    _nested_div,
    _mod_under_div,
)

_MOD_RULES: tuple[Rule, ...] = (
    _both_integers_mod,
    _unit_divisor_mod,
    _zero_numerator,
    _within_mod,
    _drop_multiples_mod,
    _reduce_common_mod,
    _symbolic_common_mod,
    _nested_mod,
)


@lru_cache(maxsize=1 << 16)
def floor_div(a: Expr, b: Expr) -> Expr:
    """``a // b`` rounding towards minus infinity, as Python's integers do."""
    for rule in _DIV_RULES:
        result = rule(a, b)
        if result is not None:
            return result
    if b.lo > 0:
        lo = a.lo // (b.lo if a.lo < 0 else b.hi) if abs(a.lo) < UNBOUNDED else a.lo
        hi = a.hi // (b.lo if a.hi >= 0 else b.hi) if abs(a.hi) < UNBOUNDED else a.hi
    else:
        lo, hi = -UNBOUNDED, UNBOUNDED
    return intern_node("floordiv", (a, b), lo, hi)


@lru_cache(maxsize=1 << 16)
def mod(a: Expr, b: Expr) -> Expr:
    """``a % b`` with the sign of ``b``, as Python's integers do."""
    for rule in _MOD_RULES:
        result = rule(a, b)
        if result is not None:
            return result
    if b.lo > 0:
        lo, hi = 0, b.hi - 1 if b.hi < UNBOUNDED else UNBOUNDED
        if a.lo >= 0:
            hi = min(hi, a.hi)
    else:
        lo, hi = -UNBOUNDED, UNBOUNDED
    return intern_node("mod", (a, b), lo, hi)


@lru_cache(maxsize=1 << 14)
def minimum(a: Expr, b: Expr) -> Expr:
    """The smaller of the two."""
    if known_le(a, b):
        return a
    if known_le(b, a):
        return b
    first, second = sorted((a, b), key=lambda e: e.key)
    return intern_node("min", (first, second), min(a.lo, b.lo), min(a.hi, b.hi))


@lru_cache(maxsize=1 << 14)
def maximum(a: Expr, b: Expr) -> Expr:
    """The larger of the two."""
    if known_le(a, b):
        return b
    if known_le(b, a):
        return a
    first, second = sorted((a, b), key=lambda e: e.key)
    return intern_node("max", (first, second), max(a.lo, b.lo), max(a.hi, b.hi))


def recombine(e: Expr, _unused: Expr) -> Expr:
    """``k*n*(x // n) + k*(x % n) -> k*x`` and ``k*m*((x // m) % n) + k*(x % m) -> k*(x % (m*n))`` inside a sum."""
    constant, terms = linear(e)
    table = dict(terms)
    for term, c in terms:
        if term.op != "mod":
            continue
        x, n = term.args
        if not _nonzero(n):
            continue
        quotient = floor_div(x, n)
        wanted = multiply(multiply(Int(c), n), quotient)
        _, wanted_terms = linear(wanted)
        if (
            wanted_terms
            and not linear(wanted)[0]
            and quotient.op == "floordiv"
            and all(table.get(t) == k for t, k in wanted_terms)
        ):
            rest = from_linear(constant, [(t, k) for t, k in terms if t is not term and t not in dict(wanted_terms)])
            return add(rest, multiply(Int(c), x))
        for other, k in terms:
            if (
                other.op == "mod"
                and other.args[0] is quotient
                and n.is_int
                and k == c * n.args[0]
                and n.lo > 0
                and other.args[1].lo > 0
            ):
                rest = from_linear(constant, [(t, v) for t, v in terms if t is not term and t is not other])
                return add(rest, multiply(Int(c), mod(x, multiply(n, other.args[1]))))
    return e


register_operation("floordiv", floor_div)
register_operation("mod", mod)
register_operation("recombine", recombine)
