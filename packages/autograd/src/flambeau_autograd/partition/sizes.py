"""Sizes that the backward computes with and that none of its own inputs tells.

In: a `Joint` and the backward graph that was cut out of it. Out: nodes of the forward that are worth those sizes, to be saved as well. A
padded dimension is an example: its gradient comes in with `s + 2` elements and leaves with `s`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..joint.record import Joint
from ..passes.facts import symbols_made


def untold_sizes(joint: Joint, backward: GraphModule, late: set[Node]) -> list[Node]:
    """The forward's nodes for every symbol that the backward uses and cannot read from an input; those that exist already, or new ones."""
    told: set[Any] = set()
    used: dict[Any, None] = {}
    for node in backward.graph.nodes:
        for expression in _expressions(node.meta.get("val")):
            if node.op == "placeholder" and expression.is_symbol:
                told.add(expression)
            used.update(dict.fromkeys(sorted(expression.free_symbols, key=str)))
        told |= symbols_made(node) if node.op == "call_function" else set()
    return [node for symbol in used if symbol not in told and (node := _teller(joint, symbol, late)) is not None]


def _teller(joint: Joint, symbol: Any, late: set[Node]) -> Node | None:
    for node in joint.graph.nodes:
        value = node.meta.get("val")
        if node not in late and isinstance(value, torch.SymInt) and value.node.expr == symbol:
            return node
    for item in joint.inputs:
        for dim, size in enumerate(item.seen.shape if item.is_tensor else ()):
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                last = next(node for node in reversed(joint.graph.nodes) if node.op == "placeholder")
                return _size_of(joint, item.node, dim, size, after=last)
    for node in joint.graph.nodes:
        value = node.meta.get("val")
        if node in late or node.op == "placeholder" or not isinstance(value, torch.Tensor):
            continue
        for dim, size in enumerate(value.shape):
            # The size of a result that depends on values.
            if isinstance(size, torch.SymInt) and size.node.expr == symbol:
                return _size_of(joint, node, dim, size, after=node)
    return None


def _size_of(joint: Joint, tensor: Node, dim: int, size: torch.SymInt, *, after: Node) -> Node:
    with joint.graph.inserting_after(after):
        made = joint.graph.call_function(torch.ops.aten.sym_size.int, (tensor, dim))
    made.meta.update(val=size, stack=())
    return made


def _expressions(value: Any) -> Iterator[Any]:
    """The symbolic sizes, strides and numbers of a node's value."""
    if isinstance(value, torch.SymInt):
        if value.node.constant is None:
            yield value.node.expr
    elif isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            for part in (*value.shape, *value.stride()):
                yield from _expressions(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _expressions(part)
