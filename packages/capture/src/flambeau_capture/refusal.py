"""A frame that is not captured: the break that says why, for good or for one call; with `fullgraph` it is an error."""

from __future__ import annotations

from .config import Config
from .errors import GraphBreakError, UserPosition
from .reasons import describe
from .signals import GraphBreak

_WHERE = {
    True: "the frame cannot be captured as one graph",
    False: "the graph breaks where error_on_graph_break is set",
}


class CannotCapture(Exception):
    """The frame is left to plain Python, for good or (`always=False`) for this call; the break says why.

    With `recursive`, which is for good, so are the frames that it calls.
    """

    def __init__(self, reason: GraphBreak, *, always: bool = True, recursive: bool = False) -> None:
        super().__init__(reason.message)
        self.reason = reason
        self.always = always
        self.recursive = recursive


class TraceAnew(CannotCapture):
    """The frame is traced once more: what this trace found, or had done, is known to the next."""


class NumbersRefused(Exception):
    """A backend cannot compile a graph for the numbers and sizes in it that depend on values (`meta["is_open"]`)."""


def refuse_fullgraph(broken: GraphBreak, config: Config) -> None:
    """Raise the break as `GraphBreakError`, with the user's line, where the configuration makes an error of it."""
    if not config.refuses_breaks:
        return
    reason = describe(broken.code)
    at = broken.position
    positions = [UserPosition(*frame) for frame in broken.stack[:-1]]
    if at is not None:
        positions.append(
            UserPosition(
                at.file,
                at.line,
                at.function,
                at.column if at.column >= 0 else None,
                at.end_column if at.end_column >= 0 and at.end_line == at.line else None,
            )
        )
    raise GraphBreakError(
        f"{_WHERE[config.fullgraph]} [{broken.code}]: {reason.explanation}: {broken.message}",
        hint=broken.hint or reason.hint,
        positions=positions,
    ) from broken
