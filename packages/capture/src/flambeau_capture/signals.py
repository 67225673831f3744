"""The exceptions that steer the interpreter, none of which reaches the user, and the positions that they tell.

`GraphBreak` says that the current instruction cannot be traced; `TracedRaise` carries an exception raised by the traced program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


@frozen(eq=False)
class Position:
    """A place in the user's program; columns are 0-based, `-1` when unknown."""

    file: str
    line: int
    function: str
    column: int = -1
    end_line: int = -1
    end_column: int = -1


class TensorsAsNumbers(Exception):
    """An operation reads these tensors, on fakes, in the place of numbers."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.tensors = tensors


class GraphBreak(Exception):
    """The current instruction cannot be traced. `code` is a key of `reasons`; a `whole` frame is left to Python, where others are cut,
    also for what a call does that was inlined: it may give it back."""

    def __init__(self, code: str, message: str, hint: str = "", *, whole: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.whole = whole
        self.message = message
        self.hint = hint
        self.position: Position | None = None
        self.stack: tuple[tuple[str, int, str], ...] = ()

    @property
    def is_in_root(self) -> bool:
        """Whether it is an instruction of the frame itself, not of a call that was inlined."""
        return len(self.stack) == 1

    def without_frames(self, handled: BaseException | None) -> GraphBreak:
        """This break, which keeps nothing of the trace alive: its traceback and those of what led to it hold every frame of ours, and through these
        the program's. Behind them may be what the program was handling when the trace began, which stays as it is."""
        seen, waiting = {id(handled), id(None)}, [self]
        while waiting:
            error: Any = waiting.pop()
            if id(error) not in seen:
                seen.add(id(error))
                error.__traceback__ = None
                waiting += error.__cause__, error.__context__
        return self


class TracedRaise(Exception):
    """The traced program raises `value`, an exception's stand-in."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value
