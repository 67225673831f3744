"""Questions and substitutions over whole expressions.

In: an expression and symbols. Out: the substituted expression, a symbol's stride, a value for given symbols, a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import division, truth
from .node import ONE, ZERO, Expr, Int, add, as_expr, free_symbols, linear, multiply

_BUILD: dict[str, Callable[..., Expr]] = {
    "floordiv": division.floor_div,
    "mod": division.mod,
    "min": division.minimum,
    "max": division.maximum,
    "eq": truth.eq,
    "lt": truth.lt,
    "le": truth.le,
    "not": truth.negate,
    "and": truth.both,
    "select": truth.select,
}

_EVALUATE: dict[str, Callable[..., int]] = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "eq": lambda a, b: int(a == b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "not": lambda a: int(not a),
    "and": lambda a, b: int(a and b),
    "select": lambda c, a, b: a if c else b,
}

#: A size whose hint is unknown (data-dependent) is taken to be this large in decisions about speed.
UNKNOWN_SIZE_HINT = 4096


def substitute(e: Expr, mapping: Mapping[Expr, Expr | int]) -> Expr:
    """``e`` with each symbol of ``mapping`` replaced (at once, not repeatedly), simplified again."""
    if not mapping or free_symbols(e).isdisjoint(mapping):
        return e
    memo: dict[Expr, Expr] = {symbol: as_expr(value) for symbol, value in mapping.items()}

    def visit(node: Expr) -> Expr:
        found = memo.get(node)
        if found is not None:
            return found
        if node.op in ("int", "symbol"):
            return node
        if node.op == "add":
            result: Expr = Int(node.args[0])
            for term, c in node.args[1]:
                result = add(result, multiply(Int(c), visit(term)))
        elif node.op == "mul":
            result = ONE
            for factor in node.args:
                result = multiply(result, visit(factor))
        else:
            result = _BUILD[node.op](*(visit(child) for child in node.args))
        memo[node] = result
        return result

    return visit(e)


def evaluate(e: Expr, values: Mapping[Expr, int] | Callable[[Expr], int]) -> int:
    """The integer ``e`` is worth when each symbol has the given value."""
    look_up = values if callable(values) else values.__getitem__
    memo: dict[Expr, int] = {}

    def visit(node: Expr) -> int:
        if node.op == "int":
            return int(node.args[0])
        if node in memo:
            return memo[node]
        if node.op == "symbol":
            result = look_up(node)
        elif node.op == "add":
            result = node.args[0] + sum(c * visit(term) for term, c in node.args[1])
        elif node.op == "mul":
            result = 1
            for factor in node.args:
                result *= visit(factor)
        else:
            result = _EVALUATE[node.op](*(visit(child) for child in node.args))
        memo[node] = result
        return result

    return visit(e)


def hint(e: Expr) -> int:
    """A likely value of ``e``, for decisions about speed only; never an error, never a guard."""

    def guess(symbol: Expr) -> int:
        given: int | None = symbol.args[3]
        if given is not None:
            return given
        if symbol.bound is not None:
            return max(hint(symbol.bound) - 1, 0)
        return max(symbol.lo, min(symbol.hi, UNKNOWN_SIZE_HINT))

    try:
        return evaluate(e, guess)
    except ZeroDivisionError:
        return UNKNOWN_SIZE_HINT


def coefficient(e: Expr, symbol: Expr) -> Expr | None:
    """The stride of ``symbol`` in ``e``: ``e == stride * symbol + rest`` with both free of ``symbol``; None
    otherwise."""
    stride: Expr = ZERO
    for term, c in linear(e)[1]:
        if symbol not in free_symbols(term):
            continue
        if term is symbol:
            stride = add(stride, Int(c))
            continue
        if term.op != "mul" or term.args.count(symbol) != 1:
            return None
        rest: Expr = Int(c)
        for factor in term.args:
            if factor is not symbol:
                if symbol in free_symbols(factor):
                    return None
                rest = multiply(rest, factor)
        stride = add(stride, rest)
    return stride
