"""`GraphFunctionValue`: a function that a node of the graph computes, and later nodes call: a body, what a transform makes of it, what `vjp` gives.

In: the node, the function on fakes, and what to do where the program calls it. It cannot leave the graph.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak
from .base import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch.fx

    from .base import Tracer

    Called = Callable[[Tracer, "GraphFunctionValue", Sequence[Value], Mapping[str, Value]], Value]


class GraphFunctionValue(Value):
    """`function` is it on fakes."""

    __slots__ = ("called", "function", "node")

    def __init__(self, node: torch.fx.Node, function: Callable[..., Any]) -> None:
        super().__init__()
        self.node = node
        self.function = function
        self.called: Called | None = None

    def python_type(self) -> type:
        return types.FunctionType

    def describe(self) -> str:
        return "a function that the graph computes"

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if self.called is None:
            raise GraphBreak("unsupported-call", f"calling {self.describe()}")
        return self.called(t, self, args, kwargs)
