"""Drop calls whose results nobody uses.

Valid in, valid out. Calls with effects (random draws, assertions, in-place ops) and all inputs stay.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext


def has_effect(node: fx.Node) -> bool:
    """True when removing the call could be noticed."""
    if node.op != "call_function":
        return node.op != "get_attr"
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, torch._ops.HigherOrderOperator)
    schema = target._schema
    return schema.is_mutable or not schema.returns or torch.Tag.nondeterministic_seeded in target.tags


def remove_dead(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Remove unused nodes, last first."""
    changed = False
    for node in reversed(list(gm.graph.nodes)):
        if not node.users and not has_effect(node):
            gm.graph.erase_node(node)
            changed = True
    return changed
