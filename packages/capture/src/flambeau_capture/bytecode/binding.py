"""Bound locals.

In: normalised instructions and the locals that have a value at the start. Out: for each instruction that control reaches, the locals
that certainly have one there. Cells and free variables are not looked at: they may be bound by others at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .flow import falls_through
from .model import Instruction


def bound_locals(
    instructions: Sequence[Instruction], bound: Iterable[str], start: int = 0, end: int | None = None
) -> dict[int, frozenset[str]]:
    """Locals that are bound before each instruction on all ways from `start`; ways end at `end`, which is part of the answer.

    A name that some comprehension borrows (LOAD_FAST_AND_CLEAR) is never in it: what puts it back may put back nothing.
    """
    borrowed = {i.value for i in instructions if i.name == "LOAD_FAST_AND_CLEAR"}
    found: dict[int, frozenset[str]] = {}
    todo: list[tuple[int, frozenset[str]]] = [(start, frozenset(bound) - borrowed)]
    while todo:
        index, names = todo.pop()
        known = found.get(index)
        if known is not None:
            names &= known
            if names == known:
                continue
        found[index] = names
        if index == end:
            continue
        i = instructions[index]
        if i.handler is not None:
            todo.append((i.handler.target, names))
        if i.name == "STORE_FAST":
            names |= {i.value} - borrowed
        elif i.name == "DELETE_FAST":
            names -= {i.value}
        if i.target is not None:
            todo.append((i.target, names))
        if falls_through(i):
            todo.append((index + 1, names))
    return found
