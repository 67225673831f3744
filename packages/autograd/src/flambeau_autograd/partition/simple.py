"""The reference partitioner: run in the backward only what depends on a gradient, save everything it reads."""

from __future__ import annotations

from torch.fx import Node

from ..config import Config
from ..joint.record import Joint
from ..passes.facts import is_tensor
from .split import dependents


def default(joint: Joint, config: Config) -> set[Node]:
    """The saved nodes: direct operands of the backward. Lists are saved by their items, never whole."""
    late = dependents(joint)
    saved: set[Node] = {g for g in joint.grads if isinstance(g, Node) and g not in late}
    for node in joint.graph.nodes:
        if node in late:
            saved.update(a for a in node.all_input_nodes if a not in late)
    return {
        n for n in saved if n.op != "get_attr" and (is_tensor(n) or not isinstance(n.meta.get("val"), (list, tuple)))
    }
