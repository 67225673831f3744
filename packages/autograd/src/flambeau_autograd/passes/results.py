"""Results own their memory: two results, or a result and an input, that became one storage are copied apart."""

from __future__ import annotations

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
            copy = joint.graph.call_function(torch.ops.aten.clone.default, (result,))
        copy.meta.update({k: v for k, v in result.meta.items() if k in ("val", "stack", "checkpoint", "backward")})
        joint.results[i] = copy
        copies += 1
    return copies
