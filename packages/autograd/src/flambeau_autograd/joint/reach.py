"""Which outputs an input decides, by the edges of autograd's graph: eager gives no gradient where none of them has one.

In: differentiable outputs and leaves. Out: for each leaf the places of the outputs that lead to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge


def outputs_reaching(outputs: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> list[tuple[int, ...]]:
    """One pass over the graph, from the outputs to the leaves; a set of outputs is the bits of a number."""
    ends = [get_gradient_edge(out).node for out in outputs]
    masks: dict[Any, int] = {}
    for place, node in enumerate(ends):
        masks[node] = masks.get(node, 0) | 1 << place
    for node in _readers_first(ends):
        for child, _ in node.next_functions:
            if child is not None:
                masks[child] = masks.get(child, 0) | masks[node]
    found = [masks.get(get_gradient_edge(leaf).node, 0) for leaf in leaves]
    return [tuple(place for place in range(len(outputs)) if mask >> place & 1) for mask in found]


def _readers_first(ends: Sequence[Any]) -> list[Any]:
    """Every node that the ends lead to, each after all that lead to it."""
    order: list[Any] = []
    seen: set[Any] = set()
    for end in ends:
        stack = [] if end in seen else [(end, iter(end.next_functions))]
        seen.add(end)
        while stack:
            node, rest = stack[-1]
            child = next((child for child, _ in rest if child is not None and child not in seen), None)
            if child is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, iter(child.next_functions)))
    return order[::-1]
