"""Blocks that a program does one after the other, each loaded while the one before it is worked on.

In: the straight code of one block. Out: a ``Pipelined`` loop over several, and what comes before it. A kernel that computes about as long as it waits for
memory would else do one after the other in every program, and the multiprocessor both only as far as programs happen to be at different points.

What is loaded ahead is there twice: for the first block, and under names that end in ``_next`` for the one after the block at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from .statements import Assign, Block, Check, Pipelined, Statement, position
from .substitute import children, reads, substituted
from .values import Arith, Load, Node, Variable

_NEXT = "_next"


def pipelined(head: Sequence[Assign], block: Block, step: Node, count: int) -> list[Statement]:
    """``count`` blocks, the first of which lies where ``head`` says: its position, then masks, which depend on the position alone. ``step`` is how far
    the next one lies from it. ``block`` is straight code, best with its loads first; what it loads ahead must not depend on what it stores."""
    (place,) = head[0].targets
    early = loaded_ahead(block)
    taken = {id(statement) for statement in early}
    moved = [variable for statement in (*head, *early) for variable in statement.targets]
    names = {variable: evolve(variable, name=variable.name + _NEXT) for variable in moved}
    following = Assign((names[place],), Arith("add", place, step, place.tiles, place.dtype))
    ahead = (following, *substituted((*head[1:], *early), names))
    late = tuple(statement for statement in block if id(statement) not in taken)
    return [*head, *early, Pipelined(position("block"), count, ahead, late, tuple(names.items()))]


def loaded_ahead(block: Block) -> list[Assign]:
    """The loads of ``block`` whose places and masks no other load and no check decides, with what is computed before the last of them and what none
    decides either."""
    decided: set[Variable] = set()
    found: list[Assign] = []
    length = 0
    for statement in block:
        if isinstance(statement, Check):
            decided.add(statement.position)
        if not isinstance(statement, Assign):
            continue
        free = decided.isdisjoint(reads(statement.value))
        loads = _loads(statement.value)
        if loads or not free:
            decided.update(statement.targets)
        if free:
            found.append(statement)
            length = len(found) if loads else length
    return found[:length]


def _loads(node: Node) -> bool:
    return isinstance(node, Load) or any(map(_loads, children(node)))
