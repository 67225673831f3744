"""`FrameStack`: the frames that are being traced, and where each is in the user's program.

In: the frame that runs now, told by who enters and leaves it. Out: positions, stacks of them, the count of steps, and the step of the root to stop at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..signals import GraphBreak, Position
from .narration import narrator_for
from .tried import may_catch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values.base import Value
    from .frame import Frame, Place


class ReachedBreak(Exception):
    """The root frame arrived at the step that is to run for real."""


class Begun(NamedTuple):
    """Where a step began: the root's stack, how many instructions had run by then, what had been recorded."""

    stack: tuple[Value, ...]
    steps: int
    recorded: tuple[Any, ...]


class FrameStack:
    """The innermost frame, its callers, and the root.

    Args:
        unroll_limit: after how many instructions the trace gives up.
        break_at: the step of the root frame to stop at; None on the first trace.
        recorded: how much the trace has recorded.
    """

    root: Frame

    def __init__(self, unroll_limit: int, break_at: int | None, recorded: Callable[[], tuple[Any, ...]]) -> None:
        self.unroll_limit = unroll_limit
        self.break_at = break_at
        self.root_steps = 0
        #: Where the last step of the root began.
        self.begun: Begun | None = None
        self.first_steps: dict[int, int] = {}
        self.steps = 0
        self.depth = 0
        self.frame: Frame | None = None
        #: What the frame that is made next has `left_out`.
        self.left_out: tuple[Place, ...] = ()
        #: Whether a handler of the program covers an operation of the graph.
        self.caught = False
        self._recorded = recorded
        self._narrator = narrator_for()
        #: The stack of the operation that is recorded again for a module like the one whose code made it (see `RepeatedCalls`).
        self.stamped: tuple[tuple[str, int, str], ...] | None = None
        self._last_stack: tuple[tuple[str, int, str], ...] = ()

    def step(self, frame: Frame) -> None:
        """Called before every instruction."""
        self.steps += 1
        if self.steps > self.unroll_limit:
            raise GraphBreak("too-long", f"more than {self.unroll_limit} instructions in one frame")
        if frame is self.root:
            self.root_steps += 1
            self.first_steps.setdefault(frame.index, self.root_steps)
            if self.root_steps == self.break_at:
                raise ReachedBreak
            if self.break_at is None:
                self.begun = Begun(tuple(frame.stack), self.steps, self._recorded())
        if self._narrator is not None:
            self._narrator(frame)

    def note_handlers(self) -> None:
        """Called for every operation of the graph: whether a handler of the program covers it."""
        frame = self.frame
        while frame is not None and not self.caught:
            self.caught = may_catch(frame.code, frame.index, frame.stack, frame.entered)
            frame = frame.caller

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """`(file, line, function)` of every frame being traced, innermost last."""
        if self.stamped is not None:
            return self.stamped
        frames: list[tuple[str, int, str]] = []
        frame = self.frame
        while frame is not None:
            instruction = frame.instructions[frame.index]
            frames.append(
                (frame.code.co_filename, instruction.position.line or frame.code.co_firstlineno, frame.code.co_qualname)
            )
            frame = frame.caller
        frames.reverse()
        stack = tuple(frames)
        if self._last_stack != stack:
            self._last_stack = stack
        return self._last_stack

    def user_position(self) -> tuple[str, int, str] | None:
        """The innermost traced line."""
        frame = self.frame
        if frame is None:
            return None
        line = frame.instructions[frame.index].position.line
        return (frame.code.co_filename, line or frame.code.co_firstlineno, frame.code.co_qualname)

    def position_of(self, frame: Frame) -> Position:
        """Where a frame is, with columns."""
        code, at = frame.code, frame.instructions[frame.index].position
        return Position(
            code.co_filename, at.line or code.co_firstlineno, code.co_qualname,
            -1 if at.column is None else at.column, -1 if at.end_line is None else at.end_line, -1 if at.end_column is None else at.end_column,
        )  # fmt: skip

    def locate(self, error: GraphBreak) -> None:
        """Note where a break happened, once."""
        if error.position is None and self.frame is not None:
            error.position = self.position_of(self.frame)
            error.stack = self.user_stack()
