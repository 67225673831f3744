"""Live locals.

In: normalised instructions. Out: for an instruction, the locals whose present value may still be read when control is there; of several, the locals
that they write.
Cells and free variables are not looked at: closures may read them at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .flow import falls_through
from .model import Instruction

_READS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST", "MAKE_CELL"})
_WRITES = frozenset({"STORE_FAST", "DELETE_FAST"})


def written_locals(instructions: Iterable[Instruction]) -> frozenset[str]:
    """The locals that some of these bind or delete, which lets go of what they held."""
    return frozenset(i.value for i in instructions if i.name in _WRITES)


def live_locals(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """The live locals before each instruction, plus an empty set for the end."""
    names = sorted({i.value for i in instructions if i.name in _READS or i.name in _WRITES})
    bit = {name: 1 << at for at, name in enumerate(names)}
    masks = _solve(instructions, bit)
    sets: dict[int, frozenset[str]] = {}
    for mask in masks:
        if mask not in sets:
            sets[mask] = frozenset(name for name in names if mask & bit[name])
    return [sets[mask] for mask in masks]


def _solve(instructions: Sequence[Instruction], bit: dict[str, int]) -> list[int]:
    live = [0] * (len(instructions) + 1)
    reads = [bit[i.value] if i.name in _READS else 0 for i in instructions]
    keeps = [~bit[i.value] if i.name in _WRITES else -1 for i in instructions]
    changed = True
    while changed:
        changed = False
        for index in range(len(instructions) - 1, -1, -1):
            instruction = instructions[index]
            after = live[index + 1] if falls_through(instruction) else 0
            if instruction.target is not None:
                after |= live[instruction.target]
            mask = reads[index] | after & keeps[index]
            if instruction.handler is not None:
                mask |= live[instruction.handler.target]
            if mask != live[index]:
                live[index] = mask
                changed = True
    return live
