"""`flex_attention` as plain operators, where a tensor that its score reads has a gradient.

In: the operator's arguments. Out: its results, computed from the scores of all pairs at once: the bodies are called with all of them, and with places
that are repeated to their shape. Only bodies that compute element by element, and that read a tensor at a place, may be called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from ...errors import UnsupportedGraph
from ...functional.layout import fill_order
from .trace import Replays, Trace, is_pointwise

aten = torch.ops.aten


def refuse_more_than_elements(traced: Trace) -> None:
    """Raise `UnsupportedGraph` where a body does more than compute numbers from numbers: with many at once it would give something else."""
    for node in traced.joint.graph.nodes:
        if node.op != "call_function" or node.meta.get("backward"):
            continue
        value = node.meta.get("val")
        number = isinstance(value, torch.Tensor) and not value.dim()
        if not number or not (is_pointwise(node) or node.target is aten.index.Tensor):
            raise UnsupportedGraph(
                f"a tensor that the score of flex_attention reads has a gradient beside {node.target}"
            )


def dense_attention(
    replay: Replays,
    projected: Sequence[torch.Tensor],
    score_mod: GraphModule,
    mask_mod: GraphModule,
    scale: float,
    scored: Sequence[Any],
    masked: Sequence[Any],
) -> tuple[torch.Tensor, ...]:
    """Out, the logarithm (to base 2) of the sum of exponentials, and the maximum of each row, as torch's kernel for eager computes them."""
    query, key, value = projected
    precision = torch.float64 if query.dtype is torch.float64 else torch.float32
    groups = query.size(1) // key.size(1)
    key, value = (part.repeat_interleave(groups, 1).expand(query.size(0), -1, -1, -1) for part in (key, value))
    scores = (query.to(precision) @ key.to(precision).transpose(-2, -1)) * scale
    places = [
        torch.arange(size, dtype=torch.int, device=query.device).view([-1 if d == dim else 1 for d in range(4)])
        for dim, size in enumerate(scores.shape)
    ]
    bodies = replay.on(replay.recorder)
    bodies.index_by_tensors = True
    changed = bodies.run(score_mod, [scores, *places, *scored])
    seen = bodies.run(mask_mod, [*places, *masked])
    changed, seen = (part[0] if isinstance(part, (list, tuple)) else part for part in (changed, seen))
    final = torch.where(seen, changed, -math.inf)
    weights = torch._safe_softmax(final, -1).to(query.dtype)
    order = fill_order(query)
    inverse = [order.index(dim) for dim in range(4)]
    out = (weights @ value).permute(order).contiguous().permute(inverse)
    return out, final.logsumexp(-1) / math.log(2), final.detach().amax(-1) / math.log(2)
