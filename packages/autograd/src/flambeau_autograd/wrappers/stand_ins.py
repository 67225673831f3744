"""Zeros in the place of an input that is gone.

In: the captured graph, the input's place, the inputs that are left. Out: a tensor of the input's type, sizes and strides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from ..errors import UnsupportedDoubleBackward

HINT = "keep the inputs alive"


def stand_in(graph: GraphModule, place: int, inputs: tuple[Any, ...]) -> torch.Tensor:
    """`inputs` as `DoubleBackward` has them. Where a tensor was resized, sizes that do not change are known all the same."""
    fakes = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    known: dict[Any, int] = {}
    for fake, value in zip(fakes, inputs):
        if isinstance(fake, torch.SymInt):
            known[fake.node.expr] = value
        elif isinstance(fake, torch.Tensor):
            laid_out = value[1:3] if isinstance(value, tuple) else (value.shape, value.stride())
            pairs = zip((*fake.shape, *fake.stride()), (*laid_out[0], *laid_out[1]))
            for size, number in pairs:
                if isinstance(size, torch.SymInt):
                    known.setdefault(size.node.expr, number)
    like = fakes[place]
    if not isinstance(like, torch.Tensor):
        raise UnsupportedDoubleBackward("cannot differentiate twice: an input of the forward was freed", HINT)
    sizes, strides = ([_number(size, known) for size in part] for part in (like.shape, like.stride()))
    return torch.zeros(0, dtype=like.dtype, device=like.device).new_empty_strided(sizes, strides).zero_()


class _Behind(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, history: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return *grads, None


def with_history(value: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """`value`, whose gradients go where those of `history` go."""
    joined: torch.Tensor = _Behind.apply(history, value)
    return joined


def _number(size: Any, known: dict[Any, int]) -> int:
    found = size.node.expr.xreplace(known) if isinstance(size, torch.SymInt) else size
    if not isinstance(found, int) and not found.is_Integer:
        raise UnsupportedDoubleBackward("cannot differentiate twice: the sizes of a freed input are not known", HINT)
    return int(found)
