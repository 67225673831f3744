"""Dead code: nodes that nobody reads go, except those that draw random numbers, write or check.

A call of the program that may raise for values is a check where nobody reads what it computes, or where that is only asked for its sizes: it
stays, with `checks` in its meta, and the backend runs it as a library call.
"""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from ..functional.ops import is_shaped_by_first
from ..joint.record import Joint
from .facts import is_pinned, may_raise


def remove_dead(joint: Joint) -> int:
    """Erase unread nodes from the back to the front; returns how many."""
    kept = kept_nodes(joint)
    read: set[Node] = set()
    removed = 0
    for node in reversed(joint.graph.nodes):
        if node not in kept and not is_pinned(node) and not any(_reads(user, node, read) for user in node.users):
            if not may_raise(node):
                if not node.users:
                    joint.graph.erase_node(node)
                    removed += 1
                continue
            node.meta["checks"] = True
        read.add(node)
    return removed


def _reads(user: Node, node: Node, read: set[Node]) -> bool:
    """Whether what `node` holds, not only its sizes, goes into something that is read."""
    if user not in read:
        return False
    if not is_shaped_by_first(user.target):
        return True
    return node in user.args[1:] or node in user.kwargs.values()


def kept_nodes(joint: Joint) -> set[Node]:
    """The nodes that leave the graph: results, gradients, written contents."""
    leaving: list[Any] = [*joint.results, *joint.grads, *(new for _, new in joint.writes)]
    return {n for n in leaving if isinstance(n, Node)}


def replace(joint: Joint, old: Node, new: Node) -> None:
    """Every reader of `old`, and every way out of the graph, takes `new` instead."""
    old.replace_all_uses_with(new)
    joint.results = [new if r is old else r for r in joint.results]
    joint.grads = [new if g is old else g for g in joint.grads]
    joint.writes = [(target, new if value is old else value) for target, value in joint.writes]
    if old in joint.told:
        joint.told = {*joint.told - {old}, new}
