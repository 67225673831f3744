"""Results own their memory: two results, or a result and an input, that became one storage are copied apart; gradients too."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.fx import Node

from ..functional.predictions import copies_keep_strides
from ..joint.record import Joint
from .facts import alias_root, is_tensor, is_view_node

aten = torch.ops.aten

#: Views that show different elements when their arguments differ.
_SELECTING = frozenset({getitem, aten.slice.Tensor, aten.select.int, aten.diagonal.default})


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
        joint.results[i] = _copied(joint, result)
        copies += 1
    return copies


def gradient_roots(joint: Joint) -> list[Node | None]:
    """Whose memory each gradient has: as long as no pass has run, that of eager's gradient."""
    return [alias_root(g) if isinstance(g, Node) else None for g in joint.grads]


def separate_gradients(joint: Joint, traced: list[Node | None]) -> int:
    """Insert copies where passes made one memory of two gradients, or of a gradient and what came in, and where two views show the same.

    `traced` are the roots before. Eager's accumulation copies a gradient of which others are still to be made views; two views of one it adds
    up in one memory, and that is wrong. One tensor may stand for several inputs: accumulation sees that it is held twice.
    """
    owner: dict[Node, Node | None] = {}
    shown: dict[Node, list[Node]] = {}
    copies: dict[tuple[Node, Node | None], Node] = {}
    # Deepest first: the views stay what they are, and what they are views of is copied.
    tensors = [(i, grad) for i, grad in enumerate(joint.grads) if isinstance(grad, Node) and is_tensor(grad)]
    for i, grad in sorted(tensors, key=lambda entry: -len(_sources(entry[1]))):
        root = traced[i]
        now = alias_root(grad)
        given = now.op in ("placeholder", "get_attr")
        if owner.setdefault(now, now if given else root) is root:
            others = shown.setdefault(now, [])
            if grad in others or not any(_overlap(grad, other) for other in others):
                others.append(grad)
                continue
        if (grad, root) not in copies:
            with joint.graph.inserting_after(grad):
                copies[grad, root] = _clone(joint, grad)
            copies[grad, root].meta["backward"] = True
        joint.grads[i] = copies[grad, root]
    return len(copies)


def _overlap(one: Node, other: Node) -> bool:
    """Whether two views of one memory may show the same: they do not where they are different parts, as of a concatenation."""
    parts, others = _parts(one), _parts(other)
    return parts[0] in others or others[0] in parts


def _parts(node: Node) -> list[Node]:
    """The part of its memory that the node shows, what that is a part of, and so on."""
    return [n for n in _sources(node) if n.target in _SELECTING or not is_view_node(n)]


def _sources(node: Node) -> list[Node]:
    """The node, what it is a view of, and so on."""
    sources: list[Any] = [node]
    while is_view_node(sources[-1]):
        sources.append(sources[-1].args[0])
    return sources


def _copied(joint: Joint, node: Node) -> Node:
    """A copy of the result; where that would have other strides, the same view of a copy of what it is a view of."""
    views: list[Node] = []
    source: Any = node
    while is_view_node(source) and not copies_keep_strides(source.meta["val"]):
        views.append(source)
        source = source.args[0]
    with joint.graph.inserting_before(node.next):
        copy = _clone(joint, source)
        for view in reversed(views):
            copy = _like(view, joint.graph.call_function(view.target, (copy, *view.args[1:]), view.kwargs))
    return copy


def _clone(joint: Joint, node: Node) -> Node:
    return _like(node, joint.graph.call_function(aten.clone.default, (node,)))


def _like(node: Node, copy: Node) -> Node:
    copy.meta.update({k: v for k, v in node.meta.items() if k in ("val", "stack", "checkpoint", "backward")})
    return copy
