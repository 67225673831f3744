"""Which sums of gradients eager makes in place.

In: the nodes of the trace's autograd graph, before it is differentiated. Out: for a sum that the engine makes of two gradients that reach
one place, whether eager adds the second to the memory of the first, whose layout the sum has then. Fakes are never added to in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import compress
from typing import Any

import torch

from ..functional.layout import hint, is_dense
from ..functional.recorder import Recorder
from ..functional.values import Cell


class Sums:
    """Follows the engine from node to node, as long as the context lasts. `held`: how many gradients wait, by the memory that they lie in."""

    def __init__(self, recorder: Recorder, nodes: Iterable[Any]) -> None:
        self._recorder = recorder
        self._held: Counter[Cell] = Counter()
        self._arriving: tuple[Any, ...] = ()
        self._nodes = nodes

    def __enter__(self) -> None:
        self._handles = [
            node.register_hook(partial(self._after, [child is not None for child, _ in node.next_functions]))
            for node in self._nodes
        ]
        self._recorder.sums = self

    def __exit__(self, *error: Any) -> None:
        self._recorder.sums = None
        for handle in self._handles:
            handle.remove()

    def _after(self, leads: list[bool], found: Any, taken: Any) -> None:
        """A node has made the gradients `found` of those that waited for it; `leads` says which of them go on."""
        self._held.subtract(self._cells(taken))
        self._arriving = tuple(compress(found, leads))
        self._held.update(self._cells(self._arriving))

    def _cells(self, grads: Iterable[Any]) -> list[Cell]:
        return [self._recorder.value_of(grad).cell for grad in grads if isinstance(grad, torch.Tensor)]

    def settle(self, first: torch.Tensor, second: Any, total: torch.Tensor) -> torch.Tensor:
        """`total` of two tensors, as the engine leaves it where it is the engine that adds."""
        if not any(second is grad for grad in self._arriving):
            return total
        if list(map(hint, first.stride())) != list(map(hint, total.stride())) and self._is_ours(first):
            total = self._recorder.with_strides(total, first.stride())
        self._held.subtract(self._cells((first, second)))
        self._held.update(self._cells((total,)))
        return total

    def _is_ours(self, grad: torch.Tensor) -> bool:
        """Whether nobody else looks at the memory, of which the gradient is no view."""
        value = self._recorder.value_of(grad)
        made = value.cell.base.op == "call_function" and bool(value.cell.base.meta.get("backward"))
        return made and not value.chain and self._held[value.cell] == 1 and is_dense(grad)
