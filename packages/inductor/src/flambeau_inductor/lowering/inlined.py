"""A body whose operands are numbers, as one value: what a kernel evaluates at each of its points.

In: a graph of pointwise ops and lookups, and a value for each of its placeholders. Out: the value of its first result, made of scalars alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import fx

from ..devices import device_of
from ..ops.dtypes import LOOP_TYPES
from .builder import Builder
from .registry import Decline, rule_for
from .values import TensorValue


def inlined(g: Builder, body: fx.GraphModule, values: Sequence[Any]) -> Any:
    """The first result of ``body``. Raises Decline where it is more than scalars."""
    known: dict[fx.Node, Any] = {}
    given = iter(values)
    outer, operations, positions = g.node, len(g.operations), len(g.positions)
    try:
        for node in body.graph.nodes:
            if node.op == "output":
                (first, *_) = node.args[0] if isinstance(node.args[0], tuple | list) else node.args
                return known.get(first, first)
            known[node] = next(given) if node.op == "placeholder" else _value(g, body, node, known)
            if len(g.operations) > operations:
                raise Decline(f"{node.target} in a kernel")
        raise AssertionError("a graph ends with its output")
    finally:
        g.node = outer
        # The kernel itself looks at the positions.
        del g.positions[positions:], g.operations[operations:]


def _value(g: Builder, body: fx.GraphModule, node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    if node.op == "get_attr":
        return _constant(g, attrgetter(str(node.target))(body))
    rule = rule_for(node.target)
    if node.op != "call_function" or rule is None:
        raise Decline(f"{node.target} in a kernel")
    g.node = node
    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), lambda part: _argument(part, known))
    result = rule(g, *args, **kwargs)
    if not isinstance(result, TensorValue) or result.dtype not in LOOP_TYPES:
        raise Decline(f"{node.target} in a kernel")
    return result


def _argument(part: Any, known: dict[fx.Node, Any]) -> Any:
    if isinstance(part, torch.SymInt | torch.SymFloat | torch.SymBool | complex):
        raise Decline("a number known at run time")
    return known[part] if isinstance(part, fx.Node) else part


def _constant(g: Builder, tensor: Any) -> TensorValue:
    if (
        type(tensor) is not torch.Tensor
        or tensor.dim()
        or not device_of(tensor.device).is_host
        or tensor.dtype not in LOOP_TYPES
    ):
        raise Decline("a constant in a kernel")
    value, dtype = tensor.item(), tensor.dtype
    return g.lazy((), dtype, tensor.device, lambda index: g.constant(value, dtype))
