"""How eager fills a tensor with random numbers: which element gets which draw.

In: an op that fills its first argument, and that argument (fake). Out: whether its functional twin has to be given the
tensor with its dimensions in memory order, so that each element gets the number that eager gives it.

On a GPU all fills number the elements in memory order. On the CPU the twins fill a copy in the target's own layout, which
comes to the same, but for two: the twin of `bernoulli_(p)` fills a row-major tensor, and `normal_` deals 16 numbers or more to
memory without gaps in another way than to memory with gaps, which no copy has.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import UnsupportedMutation
from .layout import dense_order, hint

aten = torch.ops.aten

#: From so many elements on, `normal_` fills row-major memory in blocks.
_BLOCK = 16


def fills_in_memory_order(op: Any, target: torch.Tensor) -> bool:
    """True when the twin wants the target's dimensions in memory order; raises for draws that no functional op gives."""
    if target.device.type == "cuda":
        return True
    if op is aten.bernoulli_.float:
        return True
    if op is aten.normal_.default and _has_gaps(target):
        raise UnsupportedMutation("normal_ fills memory with gaps, which has its own order of draws")
    return False


def _has_gaps(target: torch.Tensor) -> bool:
    sizes, strides = [hint(s) for s in target.shape], [hint(s) for s in target.stride()]
    if None in sizes or None in strides:
        return True
    count, dense = 1, True
    for dim in reversed(dense_order(target)):
        dense = dense and (sizes[dim] == 1 or strides[dim] == count)
        count *= sizes[dim] or 0
    return not dense and count >= _BLOCK
