"""No-ops: copies to the same type and layout, views to the same shape, pairs of transpositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from ..joint.record import Joint
from .dead import replace
from .facts import feeds_strided, is_pinned

aten = torch.ops.aten


def _same_layout(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.device != b.device or a.dim() != b.dim():
        return False
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return False  # a copy of one that is lazily conjugated holds the numbers that are shown
    return all(_equal(x, y) for x, y in zip((*a.shape, *a.stride()), (*b.shape, *b.stride())))


def _equal(x: Any, y: Any) -> bool:
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    if isinstance(x, torch.SymInt) and isinstance(y, torch.SymInt):
        return bool(x.node.expr == y.node.expr)
    return False


def _unchanged(node: Node) -> Node | None:
    source = node.args[0]
    if not isinstance(source, Node):
        return None
    before, after = source.meta.get("val"), node.meta.get("val")
    if isinstance(before, torch.Tensor) and isinstance(after, torch.Tensor) and _same_layout(before, after):
        return source
    return None


def _slice(node: Node) -> Node | None:
    start = node.args[2] if len(node.args) > 2 else 0
    step = node.args[4] if len(node.args) > 4 else 1
    return _unchanged(node) if start in (0, None) and step == 1 else None


def _twice(node: Node) -> Node | None:
    source = node.args[0]
    if isinstance(source, Node) and source.target is node.target and source.args[1:] == node.args[1:]:
        return source.args[0]
    return _unchanged(node) if node.meta["val"].dim() < 2 else None


_RULES: dict[Any, Callable[[Node], Node | None]] = {
    aten.clone.default: _unchanged,
    aten._to_copy.default: _unchanged,
    aten.alias.default: _unchanged,
    aten.detach.default: _unchanged,
    aten.expand.default: _unchanged,
    aten.view.default: _unchanged,
    aten._unsafe_view.default: _unchanged,
    aten.slice.Tensor: _slice,
    aten.t.default: _twice,
    aten.transpose.int: _twice,
}


def fold_no_ops(joint: Joint) -> int:
    """Bypass calls that change nothing; returns how many. Copies that a writing op needs for itself stay."""
    folded = 0
    for node in list(joint.graph.nodes):
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is None or is_pinned(node):
            continue
        source = rule(node)
        if source is not None and not feeds_strided(node):
            replace(joint, node, source)
            joint.graph.erase_node(node)
            folded += 1
    return folded
