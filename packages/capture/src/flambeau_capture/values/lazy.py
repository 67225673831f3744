"""`LazyValue`: a real object that has not been looked at, so that nothing is guarded yet.

In: an object and its source. Out: `realise` wraps it (and guards it) on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Value

if TYPE_CHECKING:
    from ..sources.source import Source
    from .base import Tracer


class LazyValue(Value):
    """Never on the stack: it is realised when pushed."""

    __slots__ = ("object", "realised")

    def __init__(self, object: Any, source: Source) -> None:
        super().__init__(source)
        self.object = object
        self.realised: Value | None = None

    def python_type(self) -> type:
        return type(self.object)

    def realise(self, t: Tracer) -> Value:
        if self.realised is None:
            assert self.source is not None
            self.realised = t.wrapper.wrap(self.object, self.source)
        return self.realised

    def real(self) -> Any:
        return self.object

    def rebuild(self, e: Any) -> None:
        if self.realised is None:
            e.source(self.source)
        else:
            e.value(self.realised)
