"""Where a frame that breaks is cut.

In: a tracer that stopped. Out: the step of the root frame to stop at instead, and what lies around or after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .library import itertools
from .values.iterators import IteratorValue
from .values.walk import reachable

if TYPE_CHECKING:
    from .interp.tracer import Tracer
    from .signals import GraphBreak

_EVALUATE = (
    "BINARY_", "CALL", "COMPARE_OP", "CONTAINS_OP", "FORMAT_", "LOAD_ATTR", "LOAD_METHOD", "POP_JUMP_IF_", "TO_BOOL", "UNARY_",
)  # fmt: skip
"""Instructions that take operands off the stack, and leave a result or jump."""


def place_to_cut(tracer: Tracer) -> int | None:
    """The step of the root frame at which it is cut, None for nowhere.

    That is where the trace stopped, except for two places. Where a variable cannot be read, the rest of the frame could not read it
    either. And inside a loop each round would call the resume function of the one before, until Python's stack is full: the frame is cut
    where the outermost loop begins. What follows is a frame that begins with a loop: `LoopBreaks` says what becomes of it.
    """
    if tracer.frames.root.instructions[tracer.frames.root.index].name.startswith(("LOAD_FAST", "DELETE_FAST")):
        return None
    heads = loops_around(tracer)
    if not heads:
        return max(tracer.frames.root_steps, 1)
    first = tracer.frames.first_steps.get(heads[0])
    if first is None or first == tracer.frames.root_steps:
        return None
    return first


def step_back(tracer: Tracer, broken: GraphBreak) -> bool:
    """Put the root frame back to where the instruction that broke began, so that it can be cut there without tracing it again up to that place.

    Out: whether it is there. It is not where the instruction may have left a trace: code that was inlined, an operation, something changed, an
    iterator that went on, a guard.
    """
    frames, root = tracer.frames, tracer.frames.root
    began = frames.begun
    if (
        began is None
        or place_to_cut(tracer) != frames.root_steps
        or not broken.is_in_root
        or frames.steps != began.steps
        or tracer.recorded() != began.recorded
    ):
        return False
    if not root.instructions[root.index].name.startswith(_EVALUATE):
        return False
    kept = sum(
        1 for _ in itertools.takewhile(lambda pair: pair[0] is pair[1], zip(began.stack, root.stack, strict=False))
    )
    if any(isinstance(value, IteratorValue) for value in reachable(began.stack[kept:]).values()):
        return False
    root.stack[:] = began.stack
    return True


def stores_data_later(tracer: Tracer) -> bool:
    """Whether the root frame assigns an attribute `data` from where it stopped on."""
    rest = tracer.frames.root.instructions[min([tracer.frames.root.index, *loops_around(tracer)]) :]
    return any(found.name == "STORE_ATTR" and found.value == "data" for found in rest)


def handles_groups(tracer: Tracer) -> bool:
    """Whether the root frame has an `except*`: what that raises has no line of the frame in its traceback, and would have one of a resume function."""
    return any(found.name == "CHECK_EG_MATCH" for found in tracer.frames.root.instructions)


def computes(tracer: Tracer) -> bool:
    """Whether the root frame itself computes: functions that it only calls are captured without it."""
    return any(node.op != "placeholder" and len(node.meta.get("stack", ())) == 1 for node in tracer.graph.graph.nodes)


def goes_over_tensors(tracer: Tracer) -> bool:
    """Whether the root frame stopped at a loop over the rows of a tensor: most likely its rounds compute."""
    root = tracer.frames.root
    if root.instructions[root.index].name != "FOR_ITER":
        return False
    iterator = root.stack[-1].real()
    if type(iterator) is not type(iter(())):
        return False
    items = iterator.__reduce__()[1][0]
    return bool(items) and all(isinstance(item, torch.Tensor) for item in items)


def loops_around(tracer: Tracer) -> list[int]:
    """Where the loops begin that the root frame stopped in, the outermost first."""
    index = tracer.frames.root.index
    return sorted(
        {
            jump.target
            for at, jump in enumerate(tracer.frames.root.instructions)
            if jump.target is not None and jump.target <= index <= at and jump.target != at
        }
    )
