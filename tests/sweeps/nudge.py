"""What a program comes to when every number that was rounded is rounded otherwise.

In: a number that chooses the directions. Out: a mode under which operands and results of ops that round are off by one rounding of the largest number
in the tensor. Where eager under it gives another value than eager, that value hangs on rounding: the angle of what cancelled out, a whole
number cut off just below one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


class Nudging(TorchDispatchMode):
    """Nudges operands and results of what rounds: equal numbers alike. What is exact, and what only moves numbers, stays as it is."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._factor = 0x9E3779B97F4A7C15 // (2 * seed + 3) | 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The op's result, if it is exact, or one of operands beside these."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if any(value.alias_info is not None for value in (*func._schema.arguments, *func._schema.returns)):
            return out
        if torch.Tag.nondeterministic_seeded in func.tags or not _has_rounded(args, out):
            return out
        return pytree.tree_map_only(
            Tensor, self._nudged, func(*pytree.tree_map_only(Tensor, self._nudged, args), **kwargs)
        )

    def _nudged(self, tensor: Tensor) -> Tensor:
        if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
            return tensor
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        step = torch.finfo(real.dtype).eps * real.abs().nan_to_num(0, 0, 0).max()
        bits = real.to(torch.float64).view(torch.int64)
        signs = ((bits ^ (bits >> 29)) * self._factor >> 40 & 1) * 2 - 1
        moved = torch.empty_like(tensor).copy_(tensor)
        (torch.view_as_real(moved) if tensor.is_complex() else moved).add_(signs.to(real.dtype) * step)
        return moved


def _has_rounded(args: Any, out: Any) -> bool:
    """Whether a result has digits that none of the operands has: numbers other than theirs, that are no small fractions."""
    given = [_numbers(t) for t in pytree.tree_leaves(args) if isinstance(t, Tensor)]
    known = torch.cat(given) if given else torch.empty(0, dtype=torch.float64)
    made = [
        _numbers(t)
        for t in pytree.tree_leaves(out)
        if isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())
    ]
    return any(bool(((t * 1024 != (t * 1024).round()) & ~torch.isin(t, known)).any()) for t in made)


def _numbers(tensor: Tensor) -> Tensor:
    real = torch.view_as_real(tensor.detach().resolve_conj()) if tensor.is_complex() else tensor.detach()
    return real.to(torch.float64).abs().nan_to_num(0, 0, 0).flatten()
