"""`CounterValue`: an `itertools.count` that existed before the frame.

In: the object. Out: its numbers, of which the first is read at every call (a symbol once it has changed), and as many steps of the real one after the
graph as the program took.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..library import itertools
from ..signals import GraphBreak
from ..sources.source import Computed
from .base import Value
from .iterators import IteratorValue

if TYPE_CHECKING:
    from ..sources.source import Source
    from .base import Tracer


class CounterValue(IteratorValue):
    """An `itertools.count` from outside; `following` is its next number, None while nobody asked."""

    __slots__ = ("following", "object", "step")

    def __init__(self, object: Any, source: Source) -> None:
        super().__init__(source)
        self.object = object
        self.step: Value | None = None
        self.following: Value | None = None

    def python_type(self) -> type:
        return itertools.count

    def real(self) -> Any:
        return self.object

    def next(self, t: Tracer) -> Value | None:
        if self.following is None or self.step is None:
            self.following, self.step = (self._read(t, read) for read in (next_number, step_of))
        found = self.following
        t.heap.call_later(t.wrapper.wrap_pinned(next), [self])
        self.following = t.operators.binary("+", found, self.step)
        return found

    def _read(self, t: Tracer, read: Any) -> Value:
        number = read(self.object)
        assert self.source is not None
        if number is None or t.guards.is_trusted(self.source):
            raise GraphBreak(
                "unsupported-operation", "next() of an itertools.count of other numbers, or of a library's"
            )
        return t.wrapper.wrap(number, Computed(self.source, read, f"{read.__name__}({self.source.name})"))


def next_number(counter: Any) -> int | float | None:
    """What `next` of an `itertools.count` gives, which is not asked: its `repr` tells it. None for other numbers than Python's own."""
    return _parts(counter)[0]


def step_of(counter: Any) -> int | float | None:
    """From one number of an `itertools.count` to the next."""
    return _parts(counter)[1]


def _parts(counter: Any) -> tuple[Any, Any]:
    try:
        found = ast.literal_eval(repr(counter).removeprefix("count"))
    except (ValueError, SyntaxError, TypeError):
        return None, None
    start, step = found if type(found) is tuple else (found, 1)
    return (start, step) if type(start) in (int, float) and type(step) in (int, float) else (None, None)
