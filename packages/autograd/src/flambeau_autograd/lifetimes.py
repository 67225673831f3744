"""What eager would hold while it runs a graph forward and backward, as far as the trace tells: each result lives until its last reader has run.

In: a joint graph as it was traced, before any pass. Out: for each step its name, what it computes, and the bytes that are alive behind it. Views hold the
memory of what they are views of. Inputs, parameters and their gradients' tangents are not counted. The trace has taken apart what eager does in one
kernel, so that short-lived values of such an op count for a moment.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from .joint.record import Joint


def lifetimes(joint: Joint) -> list[dict[str, Any]]:
    """One row a step: `name`, `op`, `backward`, `bytes`."""
    owner: dict[Node, Node] = {}
    size: dict[Node, int] = {}
    last: dict[Node, int] = {}
    steps = [node for node in joint.graph.nodes if node.op == "call_function"]
    for at, node in enumerate(steps):
        base = _shares(node)
        owner[node] = owner.get(base, base) if base is not None else node
        if owner[node] is node:
            size[node] = _bytes(node)
        for read in node.all_input_nodes:
            if read in owner:
                last[owner[read]] = at
        last.setdefault(owner[node], at)
    for kept in (*joint.results, *joint.grads):
        if isinstance(kept, Node) and kept in owner:
            last[owner[kept]] = len(steps)
    ends: dict[int, int] = {}
    for node, end in last.items():
        ends[end] = ends.get(end, 0) + size.get(node, 0)
    rows, alive = [], 0
    for at, node in enumerate(steps):
        alive += size.get(node, 0)
        rows.append(
            {"name": node.name, "op": str(node.target), "backward": bool(node.meta.get("backward")), "bytes": alive}
        )
        alive -= ends.get(at, 0)
    return rows


def _shares(node: Node) -> Node | None:
    """The argument whose memory the result of a view, of an item, or of a write in place lies in."""
    first = next((argument for argument in node.args if isinstance(argument, Node)), None)
    if getattr(node.target, "__name__", "") == "getitem":
        return first
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return first if any(result.alias_info is not None for result in returns) else None


def _bytes(node: Node) -> int:
    values = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor)]
    # Not `numel()`: it multiplies what may have no hint.
    return sum(math.prod(map(_hint, value.shape)) * value.element_size() for value in values)


def _hint(number: Any) -> int:
    if isinstance(number, int):
        return number
    # Also a size that has one may have none by now: one that tracing found out.
    hint = number.node.hint if number.node.has_hint() else None
    return 0 if hint is None else int(hint)
