"""The table of instruction handlers.

In: `@handles("NAME", ...)` on a function `(frame, instruction) -> Outcome | None`. Out: `HANDLERS`.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..bytecode.model import Instruction

    Handler = Callable[[Any, Instruction], "Outcome | None"]


class Outcome(enum.Enum):
    """How an instruction leaves the frame's loop; None goes on."""

    RETURNED = 1
    YIELDED = 2


HANDLERS: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for instructions; each has one."""

    def register(handler: Handler) -> Handler:
        for name in names:
            if name in HANDLERS:
                raise ValueError(f"two handlers for {name}")
            HANDLERS[name] = handler
        return handler

    return register
