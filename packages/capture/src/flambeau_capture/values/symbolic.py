"""`SymbolicValue`: a Python int, float or bool that is symbolic in the graph.

In: a `torch.SymInt`/`SymFloat`/`SymBool` and the FX node that computes it. Out: arithmetic becomes nodes, truth becomes a guard of
the shape environment.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from .base import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch.fx

    from ..sources.source import Source
    from .base import Tracer

_DEEPEST = 150
"""Operations in a chain that is rebuilt by recursion: two calls each, far below Python's limit of 1000."""
_PYTHON_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@frozen(eq=False)
class Formula:
    """How a number is computed from one of the caller's: `function(what base names)`, now `value`."""

    base: Source
    function: Callable[[Any], Any]
    value: Any
    text: str


def same_number(value: Any) -> Any:
    return value


def formula_of_input(source: Source, value: Any) -> Formula:
    """The formula of a number that is the caller's own."""
    return Formula(source, same_number, value, source.name)


class SymbolicValue(Value):
    """A number known only up to guards. `node` is in the graph being built."""

    __slots__ = ("depth", "formula", "node", "operation", "symbol")

    def __init__(self, symbol: Any, node: torch.fx.Node, source: Source | None = None) -> None:
        super().__init__(source)
        self.symbol = symbol
        self.node = node
        #: How Python computes it from one number of the caller's, where it does.
        self.formula: Formula | None = None
        #: The function and its operands that gave a float: Python computes it again after the graph, where it is needed.
        self.operation: tuple[Callable[..., Any], tuple[Value, ...]] | None = None
        self.depth = 0

    def came_from(self, function: Callable[..., Any], operands: Sequence[Value]) -> None:
        """Note the operation that gave this float. The arithmetic of sizes adds and multiplies in an order of its own, so that the graph's number is
        another in the last bits; in a chain of more than `_DEEPEST` it is taken all the same."""
        depth = 1 + max(operand.depth for operand in operands if isinstance(operand, SymbolicValue))
        if depth <= _DEEPEST:
            self.operation, self.depth = (function, tuple(operands)), depth

    def rebuild(self, e: Any) -> None:
        if self.source is not None or self.operation is None:
            super().rebuild(e)
            return
        function, operands = self.operation
        e.pinned(function)
        for operand in operands:
            e.value(operand)
        e.call(len(operands))

    def python_type(self) -> type:
        return _PYTHON_TYPES[type(self.symbol)]

    def describe(self) -> str:
        return f"symbolic {self.python_type().__name__}"

    def truth(self, t: Tracer) -> bool:
        if self._is_asked_of_caller():
            return bool(self.concrete(t))
        return t.graph.decide(self.symbol)

    def is_open(self) -> bool:
        """Whether no example decides anything of this number."""
        return not self.symbol.node.has_hint()

    def _is_asked_of_caller(self) -> bool:
        """Whether a guard can ask for the number though it is open."""
        return self.formula is not None and self.is_open()

    def get_attribute(self, t: Tracer, name: str) -> Value:
        kind = self.python_type()  # of a truth value both are a number
        if (name == "real" and kind is not bool) or (name == "numerator" and kind is int):
            return self
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name in ("__int__", "__index__", "conjugate", "__trunc__") and self.python_type() is int:
            if args or kwargs:
                t.folder.real_error(getattr(int, name), [t.wrapper.from_python(self.concrete(t)), *args], kwargs)
            return self
        function = getattr(self.python_type(), name)
        if isinstance(function, types.BuiltinMethodType):  # of the class
            return t.folder.fold(function, args, kwargs)
        return t.arithmetic.computed(function, [self, *args], kwargs)

    def concrete(self, t: Tracer) -> Any:
        """The number itself; specialises it."""
        if self.formula is not None and (self.python_type() is float or self._is_asked_of_caller()):
            # A guard on Python's own number: the arithmetic of sizes would round in other places.
            t.arithmetic.watch(self.formula)
            return self.formula.value
        return t.graph.specialise(self.symbol)
