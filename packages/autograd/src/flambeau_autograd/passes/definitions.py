"""How each value of the forward is computed, before passes change the graph.

In: a `Joint` fresh from its trace. Out: a `Definition` for each forward node, and which nodes compute the same.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from ..joint.record import Joint
from ..wrappers.recovery import Definition
from .common import key_of
from .facts import is_pinned, may_fail


def definitions(joint: Joint) -> tuple[dict[Node, Node], dict[Node, Definition]]:
    """For each node the first that computes the same; what those call, in order."""
    first: dict[Node, Node] = {}
    defined: dict[Node, Definition] = {}
    known: dict[Any, Node] = {}
    for node in joint.graph.nodes:
        if node.meta.get("backward"):
            continue
        args, kwargs = map_arg(node.args, first.__getitem__), map_arg(node.kwargs, first.__getitem__)
        same = node
        if node.op == "call_function" and not is_pinned(node) and isinstance(node.target, (OpOverload, type(getitem))):
            same = known.setdefault((node.target, key_of(args), key_of(kwargs)), node)
        first[node] = same
        if same is node:
            defined[node] = Definition(node.op, node.target, args, kwargs)
    return first, defined


def must_be_known(node: Node) -> list[Node]:
    """Operands without whose values the node must not run: it may raise for others (for positions, where it is given any)."""
    if not may_fail(node):
        return []
    return list(filter(_is_position, node.all_input_nodes)) or node.all_input_nodes


def decide_sizes(node: Node) -> list[Node]:
    """Operands whose values decide a size of what the node computes."""
    late = any(_is_decided_late(value) for value in pytree.tree_leaves(node.meta.get("val")))
    return node.all_input_nodes if late else []


def _is_position(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()


def _is_decided_late(value: Any) -> bool:
    sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in sizes)
