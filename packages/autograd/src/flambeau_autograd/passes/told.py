"""What a second derivative starts from, where an input may be gone by then.

In: a `Joint` with its gradients. Out: the values that eager's nodes save and the formulas of the gradients read. They follow from what the forward
saves, as far as they depend on inputs that nobody may hold any more: a tensor that the program computed and let go, unlike a parameter, which its
history holds, and what comes beside such a tensor without wanting gradients. Most models have data and parameters alone, and are cut as is best for them.
"""

from __future__ import annotations

from torch.fx import Node

from ..joint.record import Joint
from .facts import alias_root, byte_size, is_size, short_name_of


def to_be_told(joint: Joint) -> set[Node]:
    """Of a graph as it was traced."""
    tensors = [item for item in joint.inputs if item.is_tensor]
    wanting = {item.node for item in tensors if item.leaf.requires_grad}
    computed = {item.node for item in tensors if item.node in wanting and not item.is_parameter}
    if not computed:
        return set()
    data = {item.node for item in tensors if item.node not in wanting and not item.is_parameter}
    reached = _reached(joint, computed) | (_reached(joint, data) - _reached(joint, wanting))
    read = read_by_gradients(joint) | _read_when_differentiated(joint)
    return {node for node in reached & joint.eagers & read if not _is_part(node)}


def _reached(joint: Joint, nodes: set[Node]) -> set[Node]:
    reached = set(nodes)
    for node in joint.graph.nodes:
        if any(a in reached for a in node.all_input_nodes):
            reached.add(node)
    return reached


def _read_when_differentiated(joint: Joint) -> set[Node]:
    """What the formulas of linear algebra read when they are differentiated themselves: the matrix, and not its factors alone."""
    found: set[Node] = set()
    for node in joint.graph.nodes:
        if short_name_of(node.target).lstrip("_").startswith("linalg_"):
            found.update((node, *node.all_input_nodes))
    return found


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
