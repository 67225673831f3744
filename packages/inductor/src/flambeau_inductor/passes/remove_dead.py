"""Drop calls whose results nobody uses.

Valid in, valid out. Calls with effects (random draws, assertions, in-place ops), those that are there for what they may raise, and all inputs stay.
"""

from __future__ import annotations

from torch import fx

from .. import effects
from ..context import CompileContext


def has_effect(node: fx.Node) -> bool:
    """True when removing the call could be noticed."""
    if node.op != "call_function":
        return node.op != "get_attr"
    return "checks" in node.meta or effects.has_effect(node.target)


def erase(graph: fx.Graph, node: fx.Node) -> list[fx.Node]:
    """Erase ``node``, which nobody uses, and what was there for it alone; what else it read has lost a user, and is given back."""
    pending, kept = [node], dict.fromkeys(node.all_input_nodes)
    while pending:
        dead = pending.pop()
        operands = dead.all_input_nodes
        kept.pop(dead, None)
        graph.erase_node(dead)
        for operand in operands:
            if operand.op == "call_function" and not operand.users and not has_effect(operand):
                pending.append(operand)
            else:
                kept[operand] = None
    return [operand for operand in kept if operand.users]


def remove_dead(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Remove unused nodes, last first."""
    changed = False
    for node in reversed(list(gm.graph.nodes)):
        if not node.users and not has_effect(node):
            gm.graph.erase_node(node)
            changed = True
    return changed
