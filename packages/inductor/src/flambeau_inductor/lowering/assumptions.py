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

from ..errors import UnsupportedGraphError
from ..expr import UnsupportedExpression
from ..ir.loops import Assert
from .builder import Builder


class Assumptions:
    """Those of one graph that are not checked yet."""

    def __init__(self) -> None:
        #: The names of symbols that come from outside.
        self.given: frozenset[str] = frozenset()
        self._count = 0
        self._checked: set[Any] = set()

    def leave_to_caller(self, g: Builder) -> None:
        """What is known by now comes from outside; to be called after every input."""
        self.given, self._count = frozenset(g.known_symbols), len(g.known_symbols)

    def check(self, g: Builder) -> None:
        """Append the checks that became possible; to be called after every operation."""
        if len(g.known_symbols) == self._count:
            return
        self._count = len(g.known_symbols)
        for condition, message in _conditions(g.symbols.shape_env, g.known_symbols - self.given):
            names = {str(symbol) for symbol in condition.free_symbols}
            if condition in self._checked or not names <= g.known_symbols:
                continue
            self._checked.add(condition)
            try:
                expression = g.symbols(condition)
            except UnsupportedExpression as error:
                raise UnsupportedGraphError(f"the program would have to check that {condition}: {error}") from error
            if not expression.is_int:
                g.operations.append(Assert(expression, message, g.origins))


def _conditions(env: Any, found: set[str]) -> Iterator[tuple[Any, str]]:
    """Conditions on the symbols in ``found``, with what to say where one fails."""
    for asserted in chain.from_iterable(env.deferred_runtime_asserts.values()):
        condition = env.simplify(asserted.expr)
        if found & {str(symbol) for symbol in condition.free_symbols}:
            yield condition, f"the program was compiled for sizes with {condition}: {asserted.msg}"
    for symbol, bounds in env.var_to_range.items():
        if str(symbol) not in found or not symbol.is_integer:
            continue
        for condition in (sympy.Ge(symbol, bounds.lower), sympy.Le(symbol, bounds.upper)):
            if isinstance(condition, sympy.core.relational.Relational) and condition.rhs.is_Integer:
                if condition.rhs > 0:
                    yield condition, f"the program was compiled for sizes with {condition}"
