"""Where the nodes of a graph come from in the program: the position, and the module that calls them; of a gradient, those of what it is the gradient of.

In: what a replayed node tells, before its call. Out: the same for nodes that are recorded meanwhile, and for those that the engine records later.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import torch
from attrs import define, field, frozen


@frozen
class Origin:
    """``stack`` are positions, the outermost first; ``module`` is where the module is in the one that holds it, "" for none."""

    stack: Any = ()
    module: str = ""


UNKNOWN = Origin()


@define
class Origins:
    """The engine's nodes are numbered as they are made: those of a call have numbers from what the counter was before it."""

    now: Origin = UNKNOWN
    _numbers: list[int] = field(factory=list)
    _entered: list[Origin] = field(factory=list)

    def enter(self, origin: Origin) -> None:
        """What is recorded from here on comes from there."""
        self.now = origin
        number = torch.autograd._get_sequence_nr()
        if self._numbers and self._numbers[-1] == number:
            self._entered[-1] = origin
        else:
            self._numbers.append(number)
            self._entered.append(origin)

    def of_gradient(self) -> Origin:
        """That of what the engine's node that runs now is the gradient of; unknown between its nodes, and of sums in leaves."""
        node = torch._C._current_autograd_node()
        place = bisect_right(self._numbers, node._sequence_nr()) if node is not None else 0
        return self._entered[place - 1] if place else UNKNOWN
