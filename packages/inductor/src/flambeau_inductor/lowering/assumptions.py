"""What tracing assumed of sizes that are found only while a program runs, as checks in that program.

In: the symbols that the program knows, and what their ``ShapeEnv`` holds. Out: ``Assert`` operations, as soon as all that a condition names is
known. Tracing may go on as if the condition held (two sizes that are added are equal, a size that is halved is even): kernels are
generated for that, and where it fails they would read what is not theirs.

Conditions on sizes that come in from outside are guards of whoever calls the program.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import sympy
import torch

from .. import expr as ex
from ..errors import UnsupportedGraphError
from ..expr import Expr, UnsupportedExpression
from ..ir import scalar as sc
from ..ir.loops import Assert
from ..ir.scalar import Scalar
from .builder import Builder

_COMPARISONS = {
    sympy.Eq: "eq", sympy.Ne: "ne", sympy.StrictLessThan: "lt", sympy.LessThan: "le", sympy.StrictGreaterThan: "gt", sympy.GreaterThan: "ge",
}  # fmt: skip


class Assumptions:
    """Those of one graph that are not checked yet."""

    def __init__(self) -> None:
        self._count = 0
        self._checked: set[Any] = set()

    def leave_to_caller(self, g: Builder) -> None:
        """What is known by now comes from outside; to be called after every input."""
        g.outside, self._count = frozenset(g.known_symbols), len(g.known_symbols)

    def check(self, g: Builder) -> None:
        """Append the checks that became possible; to be called after every operation."""
        if len(g.known_symbols) == self._count:
            return
        self._count = len(g.known_symbols)
        found = g.known_symbols - g.outside
        self._check_ranges(g, found)
        for condition, message in _conditions(g.symbols.shape_env, found):
            names = {str(symbol) for symbol in condition.free_symbols}
            if condition in self._checked or not names <= g.known_symbols:
                continue
            self._checked.add(condition)
            try:
                expression = g.symbols(condition) if names.isdisjoint(g.floats) else _of_floats(g, condition)
            except UnsupportedExpression as error:
                raise UnsupportedGraphError(f"the program would have to check that {condition}: {error}") from error
            if not isinstance(expression, Expr) or not expression.is_int:
                g.operations.append(Assert(expression, message, g.origins))

    def _check_ranges(self, g: Builder, found: set[str]) -> None:
        """Check the bounds of the symbols in ``found``, which the algebra of expressions takes for true. Those of a size are, as far as it has any
        from the operation that gave it."""
        env = g.symbols.shape_env
        for symbol, bounds in env.var_to_range.items() if env is not None else ():
            if str(symbol) not in found or not symbol.is_integer or symbol in self._checked:
                continue
            self._checked.add(symbol)
            expression = g.symbols(symbol)
            if not expression.is_symbol:
                continue
            is_size = expression.name not in g.read
            pairs = []
            if bounds.lower.is_Integer and not (is_size and bounds.lower <= 0):
                pairs.append((ex.Int(int(bounds.lower)), expression))
            if bounds.upper.is_Integer:
                pairs.append((expression, ex.Int(int(bounds.upper))))
            for low, high in pairs:
                # As a node of its own: by the bounds themselves the comparison would be true.
                condition = ex.intern_node("le", (low, high), 0, 1)
                message = f"the program was compiled for sizes with {ex.render(low)} <= {ex.render(high)}"
                g.operations.append(Assert(condition, message, g.origins))


def _of_floats(g: Builder, condition: Any) -> Scalar:
    """A comparison of a float with another, or with a number."""
    name = _COMPARISONS.get(type(condition))
    if name is None:
        raise UnsupportedExpression(f"{condition} is no comparison")
    return sc.op(name, *(_float(g, part) for part in condition.args))


def _float(g: Builder, number: Any) -> Scalar:
    if str(number) in g.floats:
        return g.floats[str(number)]
    if not number.is_number:
        raise UnsupportedExpression(f"{number} is computed")
    return sc.constant(float(number), torch.float64)


def _conditions(env: Any, found: set[str]) -> Iterator[tuple[Any, str]]:
    """Conditions on the symbols in ``found``, with what to say where one fails."""
    asserts = env.deferred_runtime_asserts.values() if env is not None else ()
    for asserted in chain.from_iterable(asserts):
        condition = env.simplify(asserted.expr)
        if found & {str(symbol) for symbol in condition.free_symbols}:
            yield condition, f"the program was compiled for sizes with {condition}: {asserted.msg}"
