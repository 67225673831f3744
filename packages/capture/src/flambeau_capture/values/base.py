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

from ..class_names import class_module, class_name, full_name
from ..interp.signals import GraphBreak
from ..library import functools

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer
    from ..sources.source import Source

    Emitter = Any


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
        return class_name(self.python_type())

    # What a value answers. Each default is a graph break; `t` is the tracer of the frame.

    def get_attribute(self, t: Tracer, name: str) -> Value:
        """`self.name`; a missing attribute is a traced AttributeError."""
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of {self.describe()}")

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        """`self.name = value`."""
        raise GraphBreak("unsupported-store", f"storing attribute {name!r} of {self.describe()}")

    def delete_attribute(self, t: Tracer, name: str) -> None:
        """`del self.name`."""
        raise GraphBreak("unsupported-store", f"deleting attribute {name!r} of {self.describe()}")

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`self(*args, **kwargs)`."""
        raise GraphBreak("unsupported-call", f"calling {self.describe()}")

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`self.name(*args, **kwargs)` for a method implemented by the value itself."""
        raise GraphBreak("unsupported-call", f"method {name!r} of {self.describe()}")

    def get_item(self, t: Tracer, key: Value) -> Value:
        """`self[key]`."""
        raise GraphBreak("unsupported-operation", f"indexing {self.describe()}")

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        """`self[key] = value`."""
        raise GraphBreak("unsupported-store", f"storing an item of {self.describe()}")

    def delete_item(self, t: Tracer, key: Value) -> None:
        """`del self[key]`."""
        raise GraphBreak("unsupported-store", f"deleting an item of {self.describe()}")

    def contains(self, t: Tracer, item: Value) -> bool:
        """`item in self`."""
        raise GraphBreak("unsupported-operation", f"membership in {self.describe()}")

    def length(self, t: Tracer) -> Value:
        """`len(self)`."""
        raise GraphBreak("unsupported-operation", f"len() of {self.describe()}")

    def truth(self, t: Tracer) -> bool:
        """`bool(self)`."""
        raise GraphBreak("unsupported-operation", f"the truth of {self.describe()}")

    def iterate(self, t: Tracer) -> Value:
        """`iter(self)`."""
        raise GraphBreak("unsupported-operation", f"iterating over {self.describe()}")

    def next(self, t: Tracer) -> Value | None:
        """`next(self)`; None at the end."""
        raise GraphBreak("unsupported-operation", f"next() of {self.describe()}")

    def advance(self, t: Tracer) -> Value:
        """`next(self)`; at the end the program's StopIteration."""
        found = self.next(t)
        if found is None:
            raise t.raised(StopIteration())
        return found


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


HEAP_TYPE = 1 << 9


def objects_have(cls: type, name: str) -> bool:
    """Whether the class gives `name` to its objects; `hasattr` of a class finds what its metaclass gives to the class, too."""
    return any(name in base.__dict__ for base in cls.__mro__)


def type_name(cls: type) -> str:
    """How CPython's messages name a class: those written in C carry their module, also when they look like Python's."""
    of_python = cls.__flags__ & HEAP_TYPE and cls is not functools.partial
    if of_python or class_module(cls) == "builtins":
        return class_name(cls)
    return full_name(cls)
