"""Control flow of normalised instructions.

In: normalised instructions. Out: successors, reachability.
"""

from __future__ import annotations

from collections.abc import Sequence

from .model import Instruction

TERMINAL = frozenset({"JUMP", "JUMP_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})
"""Instructions that never go on to the next one."""


def falls_through(instruction: Instruction) -> bool:
    """Whether control can reach the next instruction."""
    return instruction.name not in TERMINAL


def successors(instructions: Sequence[Instruction], index: int) -> tuple[int, ...]:
    """Where control goes after `index`, handlers left out."""
    instruction = instructions[index]
    following = (index + 1,) if falls_through(instruction) else ()
    return following if instruction.target is None else (*following, instruction.target)


def reachable(instructions: Sequence[Instruction], start: int) -> list[int]:
    """Indices that control can reach from `start`, handlers included, in order of the code."""
    seen: set[int] = set()
    todo = [start]
    while todo:
        index = todo.pop()
        if index in seen:
            continue
        seen.add(index)
        todo.extend(successors(instructions, index))
        handler = instructions[index].handler
        if handler is not None:
            todo.append(handler.target)
    return sorted(seen)
