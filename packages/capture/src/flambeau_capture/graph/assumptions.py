"""What tracing assumes of numbers that come out of tensors, as checks in the graph.

In: the conditions that the shape environment put off, because no example decides them (two sizes that are added are equal, one that is halved
is even). Out: calls of `torch._check` before the operation that needs them. Where one fails, the graph raises and has the frame run in plain
Python, which decides by the numbers themselves. Conditions on sizes of inputs alone are checked before the call (`shapes.open_conditions`).
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_leaves

from ..library import functools, itertools, operator
from ..signals import GraphBreak

#: By the names of sympy's and torch's classes: what computes them.
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Mul": operator.mul, "Pow": operator.pow, "PowByNatural": operator.pow, "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv, "Mod": operator.mod, "PythonMod": operator.mod, "Min": torch.sym_min, "Max": torch.sym_max,
    "Equality": operator.eq, "Unequality": operator.ne, "StrictLessThan": operator.lt, "LessThan": operator.le,
    "StrictGreaterThan": operator.gt, "GreaterThan": operator.ge, "And": operator.and_, "Or": operator.or_,
}  # fmt: skip
_NUMBERS = (torch.SymInt, torch.SymFloat)
_SYMBOLS = (*_NUMBERS, torch.SymBool)


def _may_be_wrong(condition: Any) -> bool:
    """Whether an operation may go on where a condition on sizes of its own results does not hold. It has sizes that differ taken for equal, of which
    one is broadcast; any other condition says what its results are like, or what it refuses."""
    return not condition.is_Relational or type(condition).__name__ == "Equality"


class Unknown(Exception):
    """A condition names a symbol that no node has, or a function that has no place in a graph."""


def is_checkable(expression: Any) -> bool:
    """Whether the stages behind can check a condition: of floats they compare what was read out of tensors, with numbers and each other."""
    if not any(symbol.is_integer is not True for symbol in expression.free_symbols):
        return True
    return bool(expression.is_Relational) and all(part.is_Symbol or part.is_number for part in expression.args)


class Assumptions:
    """Which conditions of one trace are checked, and which wait to be.

    It knows nobody who holds tensors of the program: those are freed with the trace.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._known: set[Any] = set()
        self._waiting: list[Any] = []
        self._written: dict[torch.fx.Node, Any] = {}

    def settle(self, env: Any) -> None:
        """Take what the environment put off so far as checked: the program does it itself."""
        self._waiting, waiting = [], self._waiting
        self._gather(env)
        self._waiting = waiting

    def wait(self, env: Any, given: Container[str]) -> bool:
        """Whether something was put off since that names more than symbols that come from outside."""
        self._gather(env)
        return any(str(symbol) not in given for condition in self._waiting for symbol in condition.free_symbols)

    def write(self, env: Any, at: End, given: Container[str], *, last: bool) -> None:
        """Write the checks of what was put off since.

        Args:
            env: the shape environment.
            at: where they go.
            given: names of symbols that come from outside.
            last: whether every number that a condition may name is in the graph by now.
        """
        self._gather(env)
        waiting, self._waiting = self._waiting, []
        for condition in waiting:
            names = {symbol for symbol in condition.free_symbols if str(symbol) not in given}
            # What an operation assumes of numbers that are nowhere in the graph, and of where its results lie, it checks itself.
            if not names or (last and (not _may_be_wrong(condition) or names.isdisjoint(at.mentioned()))):
                continue
            if not is_checkable(condition):
                raise GraphBreak("data-dependent-branch", f"{condition} would have to be checked")
            try:
                node, _ = at.computed(condition)
            except Unknown as error:
                if last:
                    raise GraphBreak(
                        "data-dependent-branch", f"{condition} would have to be checked: {error}"
                    ) from None
                self._waiting.append(condition)
            else:
                self._written[at.derive(torch._check, (node,), None)] = condition

    def forget(self, node: torch.fx.Node) -> None:
        """A node is taken away again: if it is a check, it has to be written once more."""
        condition = self._written.pop(node, None)
        if condition is not None:
            self._waiting.append(condition)

    def _gather(self, env: Any) -> None:
        if env.num_deferred_runtime_asserts == self._seen:
            return
        self._seen = env.num_deferred_runtime_asserts
        for asserted in itertools.chain.from_iterable(env.deferred_runtime_asserts.values()):
            if asserted.expr not in self._known:
                self._known.add(asserted.expr)
                self._waiting.append(asserted.expr)


class End:
    """The end of a graph, where conditions become nodes.

    Args:
        graph: the graph.
        derive: adds a node to it whose value is known.
    """

    def __init__(self, graph: torch.fx.Graph, derive: Callable[..., torch.fx.Node]) -> None:
        self._graph = graph
        self.derive = derive

    def computed(self, expression: Any) -> tuple[Any, Any]:
        """What an expression is in the graph, and its value."""
        if expression.is_Symbol:
            return self._read(expression)
        if expression.is_number:
            number = int(expression) if expression.is_Integer else float(expression)
            return number, number
        name = type(expression).__name__
        parts = [self.computed(part) for part in expression.args]
        if name == "Not":
            return self._applied(torch.sym_not, *parts)
        if name not in _BINARY:
            raise Unknown(f"{name} is computed")
        return functools.reduce(functools.partial(self._applied, _BINARY[name]), parts)

    def _applied(self, function: Callable[..., Any], *operands: tuple[Any, Any]) -> tuple[Any, Any]:
        value = function(*(value for _, value in operands))
        return self.derive(function, tuple(node for node, _ in operands), value), value

    def mentioned(self) -> set[Any]:
        """The symbols of which numbers and sizes in the graph are made."""
        numbers: list[Any] = []
        for value in tree_leaves([node.meta.get("val") for node in self._graph.nodes]):
            numbers += (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
        return {
            symbol for number in numbers if isinstance(number, _SYMBOLS) for symbol in number.node._expr.free_symbols
        }

    def _read(self, symbol: Any) -> tuple[Any, Any]:
        for node in self._graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, _NUMBERS) and value.node._expr == symbol:
                return node, value
            if isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    if isinstance(size, torch.SymInt) and size.node._expr == symbol:
                        return self.derive("size", (node, dim), size, "call_method"), size
        raise Unknown(f"nothing in the graph is {symbol}")
