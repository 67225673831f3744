"""`Part`: what the parts of a tracer have in common.

In: the tracer that owns the part, by which it reaches the others. Out: the base class of `Wrapper`, `Recorder`, `Caller` and the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..values.base import Tracer


class Part:
    """One part of a tracer. It owns its own state; everything else it asks of the tracer's other parts."""

    def __init__(self, t: Tracer) -> None:
        self.t = t
