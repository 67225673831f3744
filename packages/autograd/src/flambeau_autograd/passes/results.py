"""Results own their memory: two results, or a result and an input, that became one storage are copied apart; gradients too."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..joint.build import Joint
from .facts import alias_root, is_tensor


def separate_results(joint: Joint) -> int:
    """Insert copies where passes made distinct tensors of the user's program share memory; returns how many."""
    taken: set[Node] = set()
    copies = 0
    for i, result in enumerate(joint.results):
        if not isinstance(result, Node) or not is_tensor(result):
            continue
        root = alias_root(result)
        if root not in taken and root.op not in ("placeholder", "get_attr"):
            taken.add(root)
            continue
        with joint.graph.inserting_after(result):
            joint.results[i] = _copied(joint, result)
        copies += 1
    return copies


def gradient_roots(joint: Joint) -> list[Node | None]:
    """Whose memory each gradient has: as long as no pass has run, that of eager's gradient."""
    return [alias_root(g) if isinstance(g, Node) else None for g in joint.grads]


def separate_gradients(joint: Joint, traced: list[Node | None]) -> int:
    """Insert copies where passes made one memory of two gradients, or of a gradient and what came in; `traced` are the roots before."""
    owner: dict[Node, Node | None] = {}
    copies: dict[tuple[Node, Node | None], Node] = {}
    for i, (grad, root) in enumerate(zip(joint.grads, traced, strict=True)):
        if not isinstance(grad, Node) or not is_tensor(grad):
            continue
        now = alias_root(grad)
        given = now.op in ("placeholder", "get_attr")
        if owner.setdefault(now, now if given else root) is root:
            continue
        if (grad, root) not in copies:
            copies[grad, root] = _copied(joint, grad)
            copies[grad, root].meta["backward"] = True
        joint.grads[i] = copies[grad, root]
    return len(copies)


def _copied(joint: Joint, node: Node) -> Node:
    copy: Any = joint.graph.call_function(torch.ops.aten.clone.default, (node,))
    copy.meta.update({k: v for k, v in node.meta.items() if k in ("val", "stack", "checkpoint", "backward")})
    return copy
