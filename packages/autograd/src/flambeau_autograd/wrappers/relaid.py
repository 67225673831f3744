"""Gradients as eager lays them out, where tangents lay otherwise than those that the backward was compiled for.

In: gradients that the compiled backward gave, and the tangents as they came. Out: the gradients, in eager's strides, in the memory of a
tangent where eager hands that on. Only called where somebody may look at a gradient itself; `.grad` of a leaf lies as the leaf does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import log
from ..errors import AutogradError
from ..records import Layout, Lying

Given = tuple[Any, ...]
Ask = Callable[[tuple[Lying, ...], Given], Mapping[int, Layout]]

_MOST = 64
"""How many combinations of tangents' layouts are remembered."""


class Relaid:
    """`ask`: see `gradient_layouts`; `grad_inputs`: the places of the inputs that the gradients are of; `changing`: whether sizes or numbers among
    the inputs are not always the same, so that they are given too; `hands_on`: whether a gradient may be a tangent where others are absent.
    """

    def __init__(self, ask: Ask, grad_inputs: tuple[int, ...], *, changing: bool, hands_on: bool = False) -> None:
        self._ask: Ask | None = ask
        self._grad_inputs, self.changing, self.hands_on = grad_inputs, changing, hands_on
        #: Those that lie otherwise, by their places: of equal tangents the compiled backward makes gradients that lie the same.
        self._known: dict[tuple[tuple[Lying, ...], Given], list[tuple[int, Layout]]] = {}

    def __call__(
        self, found: Sequence[torch.Tensor | None], came: Sequence[torch.Tensor | None], given: Given = ()
    ) -> tuple[torch.Tensor | None, ...] | None:
        """`found`: one for each of `grad_inputs`; `came`: one for each result that has a history, None where no gradient came;
        `given`: of each input, where they change, its sizes or what it is. None: as found.
        """
        lying = tuple(None if t is None else (t.shape, t.stride()) for t in came)
        others = self._known.get((lying, given))
        if others is None:
            others = self._learn(lying, given, found)
        if not others:
            return None
        made: dict[int, torch.Tensor] = {}
        laid = list(found)
        for place, layout in others:
            grad = found[place]
            if grad is None:
                continue
            if layout.tangent >= 0:
                laid[place] = _of_tangent(grad, came[layout.tangent], layout)
                continue
            if id(grad) not in made:
                made[id(grad)] = in_strides(grad, layout.strides)
            laid[place] = made[id(grad)]
        return tuple(laid)

    def _learn(
        self, lying: tuple[Lying, ...], given: Given, found: Sequence[torch.Tensor | None]
    ) -> list[tuple[int, Layout]]:
        if self._ask is None:
            return []
        layouts: Mapping[int, Layout] = {}
        try:
            layouts = self._ask(lying, given)
        except AutogradError as error:
            log.logger.info(log.NOT_RELAID, reason=error.message)
            self._ask = None
        pairs = [(place, layouts.get(index)) for place, index in enumerate(self._grad_inputs)]
        others = [
            (place, layout) for place, layout in pairs if layout is not None and not _is_laid(found[place], layout)
        ]
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[lying, given] = others
        return others


def _of_tangent(grad: torch.Tensor, tangent: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """The tangent, or the view of it that eager would give."""
    assert tangent is not None
    if tangent.shape == grad.shape and tangent.stride() == layout.strides and not layout.offset:
        return tangent
    return torch.as_strided(tangent, grad.shape, layout.strides, tangent.storage_offset() + layout.offset)


def _is_laid(grad: torch.Tensor | None, layout: Layout) -> bool:
    """As far as strides say something: not in dimensions of one element."""
    if grad is None or layout.tangent >= 0:
        return grad is None
    pairs = zip(grad.stride(), layout.strides, grad.shape, strict=True)
    return not grad.numel() or all(a == b or size == 1 for a, b, size in pairs)


def in_strides(grad: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """A copy in memory of its own, in these strides; what they repeat is repeated in `grad`."""
    copy = torch.empty_strided(grad.shape, strides, dtype=grad.dtype, device=grad.device)
    part, source = copy, grad
    for dim, step in enumerate(strides):
        if not step:
            part, source = part.narrow(dim, 0, 1), source.narrow(dim, 0, 1)
    part.copy_(source)
    return copy
