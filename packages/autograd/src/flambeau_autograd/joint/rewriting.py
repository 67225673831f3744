"""Hands a joint graph to whoever wants to edit it before it is cut in two.

In: a `Joint`, tidied, and a function of its graph and the nodes that leave it. Out: the same `Joint` with what stands for nodes that are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch.fx import Graph, Node

from .record import Joint

#: Edits a graph in place; answers with what stands for those nodes of a list that it replaced, and for all others that are gone.
Rewrite = Callable[[Graph, list[Node]], Mapping[Node, Node]]


def rewrite_joint(joint: Joint, rewrite: Rewrite) -> None:
    """Nested graphs that it adds become constants. Nodes of a checkpointed region of which the program says what is saved carry `meta["policy"]`."""
    for node in joint.graph.nodes if joint.policies else ():
        if node.meta.get("checkpoint") in joint.policies:
            node.meta["policy"] = True
    kept = [n for n in (*joint.results, *joint.grads, *(value for _, value in joint.writes)) if isinstance(n, Node)]
    replaced = rewrite(joint.graph, list(dict.fromkeys(n for n in kept if n.op == "call_function")))
    for node in joint.graph.find_nodes(op="get_attr"):
        if "body" in node.meta:
            joint.constants.setdefault(str(node.target), node.meta["body"])
    joint.results = [replaced.get(n, n) if isinstance(n, Node) else n for n in joint.results]
    joint.grads = [replaced.get(n, n) if isinstance(n, Node) else n for n in joint.grads]
    joint.writes = [(target, replaced.get(value, value)) for target, value in joint.writes]
    # One that a pass of the user erased is told by nothing.
    joint.told = {replaced.get(n, n) for n in joint.told if n in replaced or not n._erased}
    joint.stands_for = {now: node for node, now in replaced.items()}
