"""Functions that do nothing but end what is captured where they are called: `graph_break`, `skip_frame`, `step_unsupported`.

In: a message. Out: nothing in plain Python; while tracing, a break with the message as its words. Torch's functions of these names do the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .replacements import replaces, replaces_later
from .signals import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .values.base import Value


def graph_break(msg: str = "") -> None:
    """End the graph here; does nothing outside capture."""


def skip_frame(msg: str = "") -> None:
    """Leave the frame that is captured to plain Python; functions that it calls are captured by themselves."""


def step_unsupported(msg: str = "") -> None:
    """End the graph here, and leave the rest of the frame to plain Python."""


STEP_UNSUPPORTED = "step-unsupported"


def _breaks(function: Any, code: str, *, whole: bool = False) -> None:
    def refuse(t: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        said = [*args, *kwargs.values()]
        text = t.folder.concrete(said[0]) if said else ""
        raise GraphBreak(code, str(text) or f"{function.__name__}() was called", whole=whole)

    replaces(function, as_given=True)(refuse)


def _register(graph_break: Any, skip_frame: Any, step_unsupported: Any) -> None:
    _breaks(graph_break, "user-requested")
    _breaks(skip_frame, "skipped-frame", whole=True)
    _breaks(step_unsupported, STEP_UNSUPPORTED)


_register(graph_break, skip_frame, step_unsupported)


@replaces_later("torch._dynamo.decorators")
def _register_torchs() -> None:
    theirs = sys.modules["torch._dynamo.decorators"]
    _register(theirs.graph_break, theirs.skip_frame, theirs.step_unsupported)
