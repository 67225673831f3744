"""`ThreadLocalValue`: a `threading.local`.

In: the object. Out: the attributes that it has in the thread of the call, guarded where they were found; what the program stores in it is stored
after the graph, in that thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..library import threading
from ..signals import GraphBreak
from ..sources.source import Attribute
from .base import Value

if TYPE_CHECKING:
    from ..sources.source import Source
    from .base import Tracer


class ThreadLocalValue(Value):
    """A `threading.local` from outside; `attrs` is what the trace stored."""

    __slots__ = ("attrs", "object")

    def __init__(self, object: Any, source: Source) -> None:
        super().__init__(source)
        self.object = object
        self.attrs: dict[str, Value] = {}

    def python_type(self) -> type:
        return threading.local

    def real(self) -> Any:
        return self.object

    def truth(self, t: Tracer) -> bool:
        return True

    def get_attribute(self, t: Tracer, name: str) -> Value:
        self._refuse(t, name)
        assert self.source is not None
        if name in self.attrs:
            return self.attrs[name]
        if not hasattr(self.object, name):
            return t.attributes.missing_attribute(self, name, check=self.source)
        return t.wrapper.wrap(getattr(self.object, name), Attribute(self.source, name))

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        self._refuse(t, name)
        t.heap.store_attribute(self, name, value, plain=False)
        self.attrs[name] = value

    def _refuse(self, t: Tracer, name: str) -> None:
        """Break for what the class has, and for the object of a library, whose contents are assumed to hold still."""
        if name.startswith("__") or t.guards.is_trusted(self.source):
            raise GraphBreak("unsupported-attribute", f"{name!r} of a thread-local object")
