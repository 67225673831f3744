"""Where a frame that breaks is cut.

In: a tracer that stopped. Out: the step of the root frame to stop at instead, and what lies around or after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .interp.tracer import Tracer


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
