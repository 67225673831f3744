"""Blocks that a program does one after the other, each loaded while the one before it is worked on.

In: the straight code of one block. Out: a ``Pipelined`` loop over several, and what comes before it. A kernel that computes about as long as it waits for
memory would else do one after the other in every program, and the multiprocessor both only as far as programs happen to be at different points.

What is loaded ahead is there twice: for the first block, and under names that end in ``_next`` for the one after the block at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from .statements import Assign, Block, Pipelined, Statement, defined, position
from .substitute import substituted
from .values import Arith, Node

_NEXT = "_next"


def pipelined(head: Sequence[Assign], loads: Block, work: Block, step: Node, count: int) -> list[Statement]:
    """``count`` blocks, the first of which lies where ``head`` says: its position, then masks, which depend on the position alone. ``step`` is how far
    the next one lies from it. ``loads`` is what is loaded ahead with what it is computed from: straight code that defines variables and does nothing
    else, and reads no memory that ``work``, the rest of the block, writes."""
    (place,) = head[0].targets
    names = {variable: evolve(variable, name=variable.name + _NEXT) for variable in defined((*head, *loads)).values()}
    following = Assign((names[place],), Arith("add", place, step, place.tiles, place.dtype))
    ahead = (following, *substituted((*head[1:], *loads), names))
    return [*head, *loads, Pipelined(position("block"), count, ahead, work, tuple(names.items()))]
