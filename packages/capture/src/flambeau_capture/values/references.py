"""`ReferenceValue`: a weak reference that the traced program makes, most often as a key of a `WeakKeyDictionary`.

In: an object that existed before the frame, and what is called when it ends. Out: a key that is equal to every other reference of that object,
and a reference made for real where one is handed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..library import weakref
from .base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .base import Tracer


class ReferenceValue(Value):
    """`weakref.ref(referent, callback)`; `key` is a reference of the same object, for looking it up."""

    __slots__ = ("callback", "key", "referent")

    def __init__(self, referent: Value, callback: Value | None) -> None:
        super().__init__()
        self.referent = referent
        self.callback = callback
        #: Python makes one reference of an object that calls nothing, and a new one each time that does.
        self.key = weakref.ref(referent.real(), *(() if callback is None else (_nothing,)))

    def python_type(self) -> type:
        return weakref.ref

    def real(self) -> Any:
        return self.key

    def hashed_parts(self) -> Iterable[Value]:
        """Which object is referred to is guarded already."""
        return ()

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return super().call(t, args, kwargs) if args or kwargs else self.referent

    def truth(self, t: Tracer) -> bool:
        return True

    def rebuild(self, e: Any) -> None:
        e.pinned(weakref.ref)
        e.value(self.referent)
        if self.callback is not None:
            e.value(self.callback)
        e.call(1 if self.callback is None else 2)


def _nothing(reference: Any) -> None:
    """What a reference that the trace keeps does when its object ends."""
