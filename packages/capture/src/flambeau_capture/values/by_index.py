"""Iteration over objects that have `__getitem__` and no `__iter__`, or no `__reversed__`; what a list asks before it takes elements.

In: an object. Out: the iterators that Python makes of it, which ask for one element after the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..class_names import objects_have
from ..library import operator
from ..signals import TracedRaise
from .base import Value
from .constants import ConstantValue
from .iterators import IteratorValue

if TYPE_CHECKING:
    from .base import Tracer

_FORWARD: type = type(iter(type("Indexed", (), {"__getitem__": operator.getitem})()))


class IndexIterator(IteratorValue):
    """`owner[0]`, `owner[1]`… until IndexError."""

    __slots__ = ("ended", "owner", "position")

    def __init__(self, owner: Value) -> None:
        super().__init__()
        self.owner = owner
        self.position = 0
        self.ended = False

    def python_type(self) -> type:
        return _FORWARD

    def next(self, t: Tracer) -> Value | None:
        if self.ended:
            return None
        found = _item(t, self.owner, self.position)
        self.position += 1
        self.ended = found is None
        return found

    def how_many(self, t: Tracer) -> None:
        """What a list asks of this iterator."""
        if not self.ended and objects_have(self.owner.python_type(), "__len__"):
            self.owner.length(t)

    def rebuild(self, e: Any) -> None:
        e.pinned(_forward_from)
        e.value(self.owner)
        e.value(ConstantValue(self.position))
        e.value(ConstantValue(self.ended))
        e.call(3)


class ReversedIterator(IteratorValue):
    """`owner[len(owner) - 1]` down to `owner[0]`."""

    __slots__ = ("ended", "owner", "position")

    def __init__(self, owner: Value, position: int) -> None:
        super().__init__()
        self.owner = owner
        self.position = position
        self.ended = False

    def python_type(self) -> type:
        return reversed

    def next(self, t: Tracer) -> Value | None:
        if self.position < 0 or self.ended:
            self.ended = True
            return None
        self.ended = True  # also by an exception
        found = _item(t, self.owner, self.position)
        if found is not None:
            self.position -= 1
            self.ended = False
        return found

    def how_many(self, t: Tracer) -> None:
        """What a list asks of this iterator."""
        if not self.ended:
            self.owner.length(t)

    def rebuild(self, e: Any) -> None:
        e.pinned(_backward_from)
        e.value(self.owner)
        e.value(ConstantValue(-1 if self.ended else self.position))
        e.call(2)


def _item(t: Tracer, owner: Value, position: int) -> Value | None:
    try:
        return owner.get_item(t, ConstantValue(position))
    except TracedRaise as error:
        if issubclass(error.value.python_type(), (IndexError, StopIteration)):
            return None
        raise


class _Rest:
    """Stands for a sequence of which an iterator has reached a place: its length is asked for when the iterator is made, but was then."""

    def __init__(self, sequence: Any, count: int) -> None:
        self.sequence = sequence
        self.count: int | None = count

    def __len__(self) -> int:
        count, self.count = self.count, None
        return len(self.sequence) if count is None else count

    def __getitem__(self, index: int) -> Any:
        return self.sequence[index]


def _backward_from(sequence: Any, position: int) -> Any:
    """What `reversed(sequence)` is when `position` comes next."""
    made = reversed(_Rest(sequence, position + 1))
    if position < 0:
        next(made, None)
    return made


def _forward_from(sequence: Any, position: int, ended: bool) -> Any:
    """What `iter(sequence)` is when `position` comes next."""
    made: Any = iter(_Rest((), 0) if ended else sequence)
    if ended:
        next(made, None)
    else:
        made.__setstate__(position)
    return made
