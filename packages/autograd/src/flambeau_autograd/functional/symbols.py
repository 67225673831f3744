"""Symbolic integers as graph nodes.

In: `SymInt`/`SymFloat`/`SymBool` values met while recording. Out: plain numbers where the value is known, otherwise an FX
node that computes it: a placeholder, `aten.sym_size.int` of an input, or arithmetic over those. A node per expression.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx import Graph, Node

from ..errors import UnsupportedGraph

aten = torch.ops.aten


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def build(scope: SymbolNodes, args: tuple[Any, ...]) -> Any:
        result = scope.of_expression(args[0])
        for arg in args[1:]:
            result = scope.call(function, (result, scope.of_expression(arg)))
        return result

    return build


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def build(scope: SymbolNodes, args: tuple[Any, ...]) -> Any:
        return scope.call(function, tuple(scope.of_expression(a) for a in args))

    return build


def _piecewise(scope: SymbolNodes, args: tuple[Any, ...]) -> Any:
    *cases, (last, condition) = args
    if condition != sympy.true:
        raise UnsupportedGraph(f"a size is the conditional expression {args}")
    result = scope.of_expression(last)
    for value, condition in reversed(cases):
        result = scope.call(torch.sym_ite, (scope.of_expression(condition), scope.of_expression(value), result))
    return result


_BUILDERS: dict[str, Callable[..., Any]] = {
    "Add": _reduce(operator.add),
    "Mul": _reduce(operator.mul),
    "Pow": _binary(pow),  # not the operator: a graph module would print a negative base as `-2 ** n`
    "PowByNatural": _binary(pow),
    "FloatPow": _binary(pow),
    "FloorDiv": _binary(operator.floordiv),
    "CleanDiv": _binary(operator.floordiv),
    "IntTrueDiv": _binary(operator.truediv),
    "FloatTrueDiv": _binary(operator.truediv),
    "Mod": _binary(operator.mod),
    "PythonMod": _binary(operator.mod),
    "Max": _reduce(torch.sym_max),
    "Min": _reduce(torch.sym_min),
    "Abs": _binary(abs),
    "LShift": _binary(operator.lshift),
    "RShift": _binary(operator.rshift),
    "BitwiseFn_bitwise_and": _binary(operator.and_),
    "BitwiseFn_bitwise_or": _binary(operator.or_),
    "BitwiseFn_bitwise_xor": _binary(operator.xor),
    "ToFloat": _binary(torch.sym_float),
    "TruncToInt": _binary(torch.sym_int),
    "FloorToInt": _binary(math.floor),
    "CeilToInt": _binary(math.ceil),
    "RoundToInt": _binary(round),
    "OpaqueUnaryFn_sqrt": _binary(torch._sym_sqrt),
    "StrictLessThan": _binary(operator.lt),
    "LessThan": _binary(operator.le),
    "StrictGreaterThan": _binary(operator.gt),
    "GreaterThan": _binary(operator.ge),
    "And": _reduce(operator.and_),
    "Or": _reduce(operator.or_),
    "Equality": _binary(operator.eq),
    "Unequality": _binary(operator.ne),
    "Not": _binary(torch.sym_not),
    "Piecewise": _piecewise,
}


class SymbolNodes:
    """Expression -> node, for one graph under construction."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: dict[Any, Node] = {}
        self._sources: dict[Any, tuple[Node, int, bool]] = {}
        #: The symbols of truth values, which are 1 or 0 in expressions.
        self._truths: dict[Any, Node] = {}
        self._shape_env: Any = None
        #: Makes an operand of a symbol that no input tells, in the graph of a body; its value is given where it is known.
        self.lift: Callable[[torch.SymInt], Node] | None = None

    def bind(self, value: Any, node: Node) -> None:
        """`node` is the placeholder (or the call) whose value is the symbolic number `value`."""
        self._shape_env = value.node.shape_env
        self._nodes.setdefault(value.node.expr, node)
        if isinstance(value, torch.SymBool) and value.node.expr.is_Relational and value.node.expr.lhs.is_symbol:
            self._truths[value.node.expr.lhs] = node

    def bind_tensor(self, tensor: torch.Tensor, node: Node) -> None:
        """Remember the input tensor's symbolic sizes and strides as sources for their symbols."""
        for is_stride, values in ((False, tensor.shape), (True, tensor.stride())):
            for dim, size in enumerate(values):
                if isinstance(size, torch.SymInt):
                    self._shape_env = size.node.shape_env
                    self._sources.setdefault(size.node.expr, (node, dim, is_stride))

    def bind_result(self, tensor: torch.Tensor, node: Node) -> None:
        """`node` gives the tensor: the sizes that nothing else tells come from it, as of an operator whose result's shape depends on values."""
        for dim, size in enumerate(tensor.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol and not size.node.has_hint():
                if size.node.expr not in self._nodes:
                    self._sources.setdefault(size.node.expr, (node, dim, False))

    def of(self, value: Any) -> Any:
        """A number, or the node that computes `value`."""
        known = value.node.maybe_as_int() if isinstance(value, torch.SymInt) else None
        if known is not None:
            return known
        self._shape_env = self._shape_env or value.node.shape_env
        # Of a condition as it was made: once it is assumed to hold, it is said to be true.
        return self.of_expression(value.node._expr if isinstance(value, torch.SymBool) else value.node.expr, value)

    def of_expression(self, expression: Any, value: Any = None) -> Any:
        """A number, or the node that computes the sympy `expression`."""
        node = self._nodes.get(expression)
        if node is not None:
            return node
        if expression.is_number:
            return _number(expression)
        if expression in (sympy.true, sympy.false):
            return bool(expression)
        source = self._sources.get(expression)
        if source is not None:
            origin, dim, is_stride = source
            result = self.graph.call_function(aten.sym_stride.int if is_stride else aten.sym_size.int, (origin, dim))
        elif expression in self._truths:
            result = self.graph.call_function(torch.sym_ite, (self._truths[expression], 1, 0))
        else:
            builder = _BUILDERS.get(type(expression).__name__)
            if builder is None and self.lift is not None and expression.is_symbol:
                return self.lift(value if value is not None else self._symbolic(expression))
            if builder is None:
                raise UnsupportedGraph(f"the size expression {expression} ({type(expression).__name__}) has no source")
            result = builder(self, expression.args)
        if isinstance(result, Node):
            result.meta["val"] = value if value is not None else self._symbolic(expression)
            self._nodes[expression] = result
        return result

    def value_of(self, expression: Any) -> Any:
        """The symbolic number, or number, that an expression over this graph's symbols stands for."""
        made = self.of_expression(expression)
        return made.meta["val"] if isinstance(made, Node) else made

    def call(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A node for `function(*args)`; computed at once when no argument is a node."""
        if not any(isinstance(a, Node) for a in args):
            return function(*args)
        node = self.graph.call_function(function, args)
        node.meta["val"] = function(*(a.meta["val"] if isinstance(a, Node) else a for a in args))
        return node

    def _symbolic(self, expression: Any) -> Any:
        if isinstance(expression, (sympy.core.relational.Relational, sympy.logic.boolalg.BooleanFunction)):
            return self._shape_env.create_symboolnode(expression)
        if expression.is_integer:
            return self._shape_env.create_symintnode(expression, hint=None)
        return self._shape_env.create_symfloatnode(expression, hint=None)


def _number(expression: Any) -> int | float:
    return int(expression) if expression.is_integer else float(expression)
