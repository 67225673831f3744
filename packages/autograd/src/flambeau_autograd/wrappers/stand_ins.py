"""Zeros in the place of an input that is gone.

In: the captured graph, the input's place, the inputs that are left. Out: a tensor of the input's type, sizes and strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

from ..errors import UnsupportedDoubleBackward, UnsupportedGraph

HINT = "keep the inputs alive"


def stand_in(graph: GraphModule, place: int, inputs: tuple[Any, ...]) -> torch.Tensor:
    """`inputs` as `DoubleBackward` has them. Where a tensor was resized, sizes that do not change are known all the same."""
    fakes = _shown(graph)
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
    laid = [_number(size, known) for size in (*like.shape, *like.stride())]
    if None in laid:
        raise UnsupportedDoubleBackward("cannot differentiate twice: the sizes of a freed input are not known", HINT)
    sizes, strides = laid[: like.dim()], laid[like.dim() :]
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


def changes(graph: GraphModule) -> bool:
    """Whether a number or a size among its inputs is symbolic."""
    return any(map(_is_symbolic, _shown(graph)))


def of_sizes(graph: GraphModule, given: Sequence[Any]) -> list[Any]:
    """The fakes of a graph's inputs, with numbers instead of symbols. `given`: each input's sizes or number; empty where there are no symbols."""
    fakes = _shown(graph)
    if not given:
        return fakes
    known: dict[Any, int] = {}
    for fake, value in zip(fakes, given, strict=True):
        if isinstance(fake, torch.SymInt):
            known[fake.node.expr] = value
        elif isinstance(fake, torch.Tensor):
            known.update((size.node.expr, n) for size, n in zip(fake.shape, value) if isinstance(size, torch.SymInt))
    return [_of_size(fake, value, known) if _is_symbolic(fake) else fake for fake, value in zip(fakes, given)]


def _of_size(fake: Any, value: Any, known: dict[Any, int]) -> Any:
    if not isinstance(fake, FakeTensor):
        return value
    numbers = [_number(part, known) for part in (*fake.shape, *fake.stride())]
    if None in numbers:
        raise UnsupportedGraph("the sizes of an input do not tell how it lies")
    laid = numbers[: fake.dim()], numbers[fake.dim() :]
    with fake.fake_mode, torch.enable_grad():
        made = torch.empty_strided(*laid, dtype=fake.dtype, device=fake.device, requires_grad=fake.requires_grad)
        return made if fake.is_leaf else made[...]


def _shown(graph: GraphModule) -> list[Any]:
    return [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(map(_is_symbolic, (*value.shape, *value.stride())))
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _number(size: Any, known: dict[Any, int]) -> int | None:
    """None where the known ones do not tell it."""
    found = size.node.expr.xreplace(known) if _is_symbolic(size) else size
    return int(found) if isinstance(found, int) or found.is_Integer else None
