"""What a second derivative starts from, where an input may be gone by then.

In: a `Joint` with its gradients. Out: the values that eager's nodes save and the formulas of the gradients read. They follow from what the forward
saves, as far as they depend on inputs that nobody may hold any more: a tensor that the program computed and let go, unlike a parameter, which its
history holds. Most models have data and parameters alone, and are cut as is best for them.
"""

from __future__ import annotations

from torch.fx import Node

from ..joint.build import Joint
from .facts import alias_root, byte_size, is_size


def to_be_told(joint: Joint) -> set[Node]:
    """Of a graph as it was traced."""
    reached = {
        item.node for item in joint.inputs if item.is_tensor and item.leaf.requires_grad and not item.is_parameter
    }
    if not reached:
        return set()
    for node in joint.graph.nodes:
        if any(a in reached for a in node.all_input_nodes):
            reached.add(node)
    return {node for node in reached & joint.eagers & read_by_gradients(joint) if not _is_part(node)}


def _is_part(node: Node) -> bool:
    """Whether all the memory that it looks into would be kept for a part of it."""
    root = alias_root(node)
    return root is not node and byte_size(root.meta["val"]) > byte_size(node.meta["val"])


def read_by_gradients(joint: Joint) -> set[Node]:
    """Nodes of the forward whose contents, and not their sizes alone, the gradients come from."""
    needed = {grad for grad in joint.grads if isinstance(grad, Node)}
    read = {grad for grad in needed if not grad.meta.get("backward")}
    for node in reversed(joint.graph.nodes):
        if node in needed and node.meta.get("backward"):
            needed.update(node.all_input_nodes)
            if not is_size(node):
                read.update(a for a in node.all_input_nodes if not a.meta.get("backward"))
    return read
