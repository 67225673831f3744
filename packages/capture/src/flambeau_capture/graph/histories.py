"""What autograd knows of tensors: the leaves that a history leads to, who is told of a gradient, how a gradient has to lie.

In: fakes with a history, real tensors. Out: plain answers, nothing recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import get_gradient_edge

if TYPE_CHECKING:
    from collections.abc import Iterable


def leaves_of(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that the histories of these lead to, each once."""
    found: dict[int, torch.Tensor] = {}
    seen: set[Any] = set()
    left = [get_gradient_edge(tensor).node for tensor in tensors if tensor.requires_grad]
    while left:
        node: Any = left.pop()
        if node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            found[id(variable)] = variable
        left.extend(child for child, _ in node.next_functions if child is not None)
    return list(found.values())


def is_unwatched(tensor: torch.Tensor) -> bool:
    """Whether no hook is called when a gradient comes to this tensor."""
    return not tensor._backward_hooks and not getattr(tensor, "_post_accumulate_grad_hooks", None)


def is_summed_unwatched(leaf: torch.Tensor) -> bool:
    """Whether no hook of Python's is called where the gradients of this leaf are summed. Asked by registering two, for torch tells it in no other way."""
    node: Any = get_gradient_edge(leaf).node
    for register in (node.register_hook, node.register_prehook):
        handle = register(lambda *given: None)
        count = len(handle.hooks_dict_ref())
        handle.remove()
        if count > 1:
            return False
    return True


def obeys_layout(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Whether eager keeps this gradient, which nobody else holds, for its leaf: otherwise it keeps a copy that lies as the leaf does."""
    if not fills_its_memory(leaf):
        return gradient.is_contiguous()
    for size, stride, wanted in zip(gradient.shape, gradient.stride(), leaf.stride(), strict=True):
        if (stride == 0) if size == 1 else (stride != wanted):
            return False
    return True


def fills_its_memory(tensor: torch.Tensor) -> bool:
    """Whether each element has a place of its own, and no place between them is left out."""
    if tensor.numel() == 0:
        return True
    passed: Any = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != passed:
                return False
            passed = passed * size
    return True
