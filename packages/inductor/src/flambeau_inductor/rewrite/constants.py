"""Which nodes follow from frozen inputs alone.

In: a functional graph whose placeholders of frozen inputs are marked (`freeze`). Out: whether a node is computed from those and nothing else, so that
it may be computed once for as long as they hold the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx
from torch._ops import OpOverload

from ..ops.aten import aten_op

_MARK = "frozen"
#: What a weight goes through before a product reads it is a few views and conversions: rules look no further back.
_FARTHEST = 32


def freeze(gm: fx.GraphModule, places: Sequence[int]) -> None:
    """Mark the placeholders at ``places``."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    for place in places:
        placeholders[place].meta[_MARK] = True


def is_frozen_input(node: fx.Node) -> bool:
    """Whether the node is a marked placeholder."""
    return node.op == "placeholder" and _MARK in node.meta


def is_constant(node: object) -> bool:
    """Whether a node follows from frozen inputs alone, and from one at least."""
    seen: set[fx.Node] = set()
    stack = [node]
    reads_frozen = False
    while stack:
        found = stack.pop()
        if not isinstance(found, fx.Node):
            return False
        if found in seen:
            continue
        seen.add(found)
        if is_frozen_input(found):
            reads_frozen = True
        elif len(seen) > _FARTHEST or not _is_repeatable(found):
            return False
        else:
            stack += found.all_input_nodes
    return reads_frozen


def constants_of(graph: fx.Graph) -> dict[fx.Node, bool]:
    """The nodes that follow from frozen inputs and from nothing, each with whether it reads a frozen one."""
    found: dict[fx.Node, bool] = {}
    for node in graph.nodes:
        if is_frozen_input(node):
            found[node] = True
        elif _is_repeatable(node) and all(operand in found for operand in node.all_input_nodes):
            found[node] = any(found[operand] for operand in node.all_input_nodes)
    return found


def _is_repeatable(node: fx.Node) -> bool:
    """Whether the node gives one tensor of known size, the same each time, and does nothing else."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor) or not all(isinstance(size, int) for size in (*val.shape, *val.stride())):
        return False
    if node.op == "get_attr":
        return True
    if node.op != "call_function" or not isinstance(node.target, OpOverload) or node.meta.get("raises"):
        return False
    record = aten_op(node.target)
    return not (record.draws or record.effect)
