"""Common subexpressions: equal pure calls on equal arguments are computed once.

Two tensors of arbitrary contents (`empty`) are equal calls too: nobody writes to either, and results are given memory of their own afterwards.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..joint.record import Joint
from .dead import replace
from .facts import is_pinned, symbols_made


def merge_common(joint: Joint) -> int:
    """Merge; returns how many nodes went. Forward nodes are never replaced by backward ones (order sees to it)."""
    known: dict[Any, Node] = {}
    merged = 0
    for node in list(joint.graph.nodes):
        if node.op != "call_function" or is_pinned(node) or symbols_made(node):
            continue
        target = node.target
        if not isinstance(target, OpOverload) and target is not getitem and not _is_symbolic(node):
            continue
        key = (target, key_of(node.args), key_of(node.kwargs), node.meta.get("checkpoint"))
        if key[-1] is not None and not node.meta.get("backward"):
            continue
        first = known.setdefault(key, node)
        if first is not node:
            replace(joint, node, first)
            joint.graph.erase_node(node)
            merged += 1
    return merged


def _is_symbolic(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool))


def key_of(value: Any) -> Any:
    """Equal for equal arguments: nodes by identity, numbers with their types."""
    if isinstance(value, Node):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(key_of(v) for v in value)
    if isinstance(value, dict):
        return tuple((k, key_of(v)) for k, v in sorted(value.items()))
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, slice):
        return ("slice", key_of(value.start), key_of(value.stop), key_of(value.step))
    return (type(value), value)
