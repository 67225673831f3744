"""`Value`: what the interpreter keeps on its stack in place of a real object.

In: nothing (this is the bottom of the layer). Out: the base class every value derives from, and the few values that carry no
Python object at all. A value knows its Python type, where it came from (`source`, `None` for what the trace made itself) and how
to make the real object again.

Rebuilding has two steps, so that aliases and cycles survive: `rebuild(e)` leaves the object on the stack, `fill(e)` (called by
`e.value` right after the object was stored in its temporary, only when the value was rebuilt rather than loaded) adds contents
that may refer back to it. `fill` leaves the stack as it found it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..rewrite.emitter import Emitter
    from ..sources.source import Source


class Value:
    """Abstract: a symbolic stand-in for one Python object. Equality is identity."""

    __slots__ = ("source",)

    def __init__(self, source: Source | None = None) -> None:
        self.source = source

    def python_type(self) -> type:
        """The exact type of the object this stands for."""
        raise NotImplementedError(type(self).__name__)

    def is_constant(self) -> bool:
        """Whether `constant()` answers."""
        return False

    def constant(self) -> Any:
        """The real, immutable object; only when `is_constant()`."""
        raise TypeError(f"{type(self).__name__} has no constant")

    def real(self) -> Any:
        """The real object that existed before the frame ran, or `MISSING`."""
        return MISSING

    def rebuild(self, e: Emitter) -> None:
        """Leave the real object on the stack of the code being written."""
        if self.source is None:
            raise NotImplementedError(f"{type(self).__name__} cannot be rebuilt")
        e.source(self.source)

    def fill(self, e: Emitter) -> None:
        """Add contents that may refer to this value itself."""

    def describe(self) -> str:
        """A few words for messages."""
        return self.python_type().__name__


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING: Any = _Missing()


class NullValue(Value):
    """The NULL that calls push beside a callable."""

    __slots__ = ()

    def python_type(self) -> type:
        return type(None)

    def rebuild(self, e: Emitter) -> None:
        raise TypeError("NULL is not an object: the rewriter pushes it itself")


NULL = NullValue()
