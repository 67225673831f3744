"""The border with sympy: torch's symbolic integers become ``Expr``.

In: ``torch.SymInt`` / ``SymBool`` values or sympy expressions of one ``ShapeEnv``. Out: expressions over ``Symbol``
nodes named as the ShapeEnv names them (``s0`` backed, ``u0`` data-dependent), with its value ranges and hints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from . import division, truth
from .node import ONE, UNBOUNDED, ZERO, Expr, Int, Symbol, add, as_expr, multiply


class UnsupportedExpression(ValueError):
    """A sympy expression that is not integer arithmetic this algebra models (for example true division)."""


def _ceil_div(a: Expr, b: Expr) -> Expr:
    return multiply(Int(-1), division.floor_div(multiply(Int(-1), a), b))


def _power(a: Expr, b: Expr) -> Expr:
    if not b.is_int or b.args[0] < 0 or b.args[0] > 16:
        raise UnsupportedExpression(f"power with exponent {b}")
    result: Expr = ONE
    for _ in range(b.args[0]):
        result = multiply(result, a)
    return result


def _fold(function: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    def folded(*args: Expr) -> Expr:
        result = args[0]
        for item in args[1:]:
            result = function(result, item)
        return result

    return folded


_BY_NAME: dict[str, Callable[..., Expr]] = {
    "Add": _fold(add),
    "Mul": _fold(multiply),
    "Pow": _power,
    "PowByNatural": _power,
    "FloorDiv": division.floor_div,
    "CleanDiv": division.floor_div,
    "CeilDiv": _ceil_div,
    "Mod": division.mod,
    "PythonMod": division.mod,
    "Max": _fold(division.maximum),
    "Min": _fold(division.minimum),
    "Equality": truth.eq,
    "Unequality": truth.ne,
    "StrictLessThan": truth.lt,
    "LessThan": truth.le,
    "StrictGreaterThan": lambda a, b: truth.lt(b, a),
    "GreaterThan": lambda a, b: truth.le(b, a),
    "And": _fold(truth.both),
    "Or": _fold(truth.either),
    "Not": truth.negate,
    "Where": truth.select,
    "BooleanTrue": lambda: ONE,
    "BooleanFalse": lambda: ZERO,
    "ModularIndexing": lambda x, d, m: division.mod(division.floor_div(x, d), m),
    "Identity": lambda x: x,
    "Abs": lambda x: truth.select(truth.le(ZERO, x), x, multiply(Int(-1), x)),
}


def _truncate(a: Expr, b: Expr) -> Expr:
    below_zero = multiply(Int(-1), division.floor_div(multiply(Int(-1), a), b))
    return truth.select(truth.le(ZERO, a), division.floor_div(a, b), below_zero)


_ROUNDINGS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "FloorToInt": division.floor_div,
    "CeilToInt": _ceil_div,
    "TruncToInt": _truncate,
}
_EXACT = 2**12
"""Factors up to this keep the product with a size exact in a float."""


class SymbolTable:
    """Translates values of one ShapeEnv; the same symbol always gives the same node."""

    def __init__(self, shape_env: Any = None) -> None:
        self.shape_env = shape_env
        self._symbols: dict[Any, Expr] = {}
        self._memo: dict[Any, Expr] = {}
        self._ones: dict[Any, bool] = {}

    def __call__(self, value: int | torch.SymInt | torch.SymBool | Expr | Any) -> Expr:
        """``value`` (int, SymInt, SymBool, sympy expression or Expr) as an expression.

        Raises UnsupportedExpression where integer algebra cannot hold it.
        """
        if isinstance(value, Expr):
            return value
        if isinstance(value, int):
            return as_expr(int(value))
        if isinstance(value, torch.SymInt | torch.SymBool):
            node = value.node
            if self.shape_env is None:
                self.shape_env = node.shape_env
            return ONE if self._guarded_as_one(value) else self.from_sympy(node.expr)
        return self.from_sympy(value)

    def define(self, symbol: torch.SymInt, value: Expr) -> None:
        """From here on a symbol is what it is computed of; it must not have been met."""
        self._symbols[symbol.node.expr] = value

    @property
    def symbols(self) -> tuple[Expr, ...]:
        """The symbols that were met."""
        return tuple(self._symbols.values())

    def _guarded_as_one(self, value: torch.SymInt | torch.SymBool) -> bool:
        """Whether a guard says that a computed size is 1, as for a slice that is broadcast: sympy's expression does not tell."""
        e = value.node.expr
        if isinstance(value, torch.SymBool) or e.is_Symbol or e.is_Integer or not value.node.has_hint():
            return False
        found = self._ones.get(e)
        if found is None:
            found = self._ones[e] = value.node.hint == 1 and statically_known_true(value == 1)
        return found

    def from_sympy(self, e: Any) -> Expr:
        """A sympy expression of this table's ShapeEnv."""
        if isinstance(e, sympy.Integer | int):
            return Int(int(e))
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._translate(e)
        return found

    def _translate(self, e: Any) -> Expr:
        if isinstance(e, sympy.Symbol):
            return self._symbol(e)
        name = type(e).__name__
        if name in _ROUNDINGS and (fraction := self._fraction(e.args[0])) is not None:
            return _ROUNDINGS[name](*fraction)
        if name == "Piecewise":
            return self._piecewise(e.args)
        build = _BY_NAME.get(name)
        if build is None:
            raise UnsupportedExpression(f"{type(e).__name__} in {e}")
        return build(*(self.from_sympy(argument) for argument in e.args))

    def _piecewise(self, cases: Any) -> Expr:
        *others, (last, condition) = cases
        if condition != sympy.true:
            raise UnsupportedExpression(f"conditions that leave a number open: {cases}")
        result = self.from_sympy(last)
        for value, condition in reversed(others):
            result = truth.select(self.from_sympy(condition), self.from_sympy(value), result)
        return result

    def _fraction(self, e: Any) -> tuple[Expr, Expr] | None:
        """Numerator and denominator of a float that rounds to integers as its exact value does: a quotient of integers (`size / 32`), or an integer times floats
        with few binary places (`1.5 * size`)."""
        name = type(e).__name__
        if name == "IntTrueDiv" and e.args[1].is_positive:
            # Correctly rounded; the nearest integer that it is not lies 1 / divisor away, which is more than the rounding for sizes below 2**52.
            return self.from_sympy(e.args[0]), self.from_sympy(e.args[1])
        return self._exact_fraction(e)

    def _exact_fraction(self, e: Any) -> tuple[Expr, Expr] | None:
        """Of a float that is exact."""
        name = type(e).__name__
        if name == "ToFloat":
            return self.from_sympy(e.args[0]), ONE
        if isinstance(e, sympy.Float):
            numerator, denominator = float(e).as_integer_ratio()
            return (Int(numerator), Int(denominator)) if max(abs(numerator), denominator) <= _EXACT else None
        if name != "Mul":
            return None
        above, below = ONE, ONE
        for part in map(self._exact_fraction, e.args):
            if part is None:
                return None
            above, below = multiply(above, part[0]), multiply(below, part[1])
        return above, below

    def _symbol(self, s: Any) -> Expr:
        found = self._symbols.get(s)
        if found is None:
            if not s.is_integer:
                raise UnsupportedExpression(f"{s} is not an integer symbol")
            found = self._symbols[s] = self._make(s)
        return found

    def _make(self, s: Any) -> Expr:
        lo, hi, likely = -UNBOUNDED, UNBOUNDED, None
        env = self.shape_env
        if s.is_positive:
            lo = 1
        elif s.is_nonnegative:
            lo = 0
        if env is not None:
            known = env.var_to_range.get(s)
            if known is not None:
                lo, hi = max(lo, _finite(known.lower, -UNBOUNDED)), min(hi, _finite(known.upper, UNBOUNDED))
            # The newer name first: asking for the older one warns where both exist.
            values = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val
            # What the program says to choose for goes before the size of the first call.
            value = getattr(env, "var_to_hint_override", {}).get(s, values.get(s))
            value = sympy.Integer(value) if isinstance(value, int) else value
            likely = int(value) if value is not None and getattr(value, "is_Integer", False) else None
        return Symbol(str(s), lo, hi, hint=likely)


def _finite(bound: Any, otherwise: int) -> int:
    try:
        value = int(bound)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return otherwise
    return max(-UNBOUNDED, min(UNBOUNDED, value))
