"""The writes at the end of a forward graph: each reads what the inputs held before any of them.

In: a functional forward graph, pairs (written placeholder, node of its new contents), the nodes that are returned. Out: `copy_` nodes in
an order in which no write comes before one that still reads its target, and copies where there is no such order.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from ..passes.facts import alias_root


def write_back(graph: Graph, writes: list[tuple[Node, Node]], returned: list[Node]) -> dict[Node, Node]:
    """Append the writes. Returns what to return in the place of nodes that show memory which is written: their copies."""
    targets = {target for target, _ in writes}
    copies = {node: _clone(graph, node) for node in dict.fromkeys(returned) if _reads(node, targets)}
    pending = dict(writes)
    while pending:
        target = next((t for t in pending if not any(_reads(v, {t}) for v in pending.values())), None)
        if target is None:
            # Each target is read by some write (two inputs that change places): one of them reads a copy.
            target = next(iter(pending))
            pending = {t: _clone(graph, v) if _reads(v, {target}) else v for t, v in pending.items()}
            continue
        write = graph.call_function(torch.ops.aten.copy_.default, (target, pending.pop(target)))
        write.meta.update(target.meta)
    return copies


def _reads(node: Node, targets: set[Node]) -> bool:
    """Whether it shows the memory of one of these inputs."""
    return alias_root(node) in targets


def _clone(graph: Graph, node: Node) -> Node:
    copy = graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta.update(node.meta)
    return copy
