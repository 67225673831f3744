"""Iterators: over sequences, computed ones (zip, map, enumerate…).

In: values or a Python function that makes the next value. Out: `next` gives a value or None at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..library import collections, functools
from ..signals import GraphBreak, TracedRaise
from .base import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .base import Tracer


class IteratorValue(Value):
    """Abstract."""

    __slots__ = ()

    def iterate(self, t: Tracer) -> Value:
        return self

    def truth(self, t: Tracer) -> bool:
        return True

    def contains(self, t: Tracer, item: Value) -> bool:
        while (found := self.next(t)) is not None:
            if t.operators.same_or_equal(found, item):
                return True
        return False

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "__next__":
            return self.advance(t)
        if name == "__iter__":
            return self
        return super().call_method(t, name, args, kwargs)


_OVER_LIST: type = type(iter([]))
_OVER_TUPLE: type = type(iter(()))
_BACKWARD: type = type(reversed([]))


class SequenceIterator(IteratorValue):
    """Over a live Python list of values; `owner` is the list or the constant that they are the items of, `cls` the iterator's class. Once it came to
    the end, it has nothing more to give, whatever is appended then."""

    __slots__ = ("cls", "ended", "items", "owner", "position")

    def __init__(self, items: list[Value], owner: Value | None = None, cls: type | None = None) -> None:
        super().__init__()
        self.items = items
        self.position = 0
        self.owner = owner
        self.cls = cls or (_OVER_TUPLE if owner is None else _OVER_LIST)
        self.ended = False

    def python_type(self) -> type:
        return self.cls

    def next(self, t: Tracer) -> Value | None:
        if self.ended or not 0 <= self.position < len(self.items):
            self.ended = True
            return None
        found = self.items[self.position].realise(t)
        self.position += self.step
        return found

    @property
    def step(self) -> int:
        """From one element to the next."""
        return 1

    def rebuild(self, e: Any) -> None:
        if self.ended and self.cls in _SPENT:
            e.pinned(_spent)
            e.pinned(self.cls)
            e.call(1)
            return
        if self.owner is not None:
            e.pinned({_OVER_LIST: _iterator_at, _BACKWARD: _backward_at}.get(self.cls, _advanced))
            e.value(self.owner)
            e.const(self.position)
            e.call(2)
            return
        e.pinned(iter)
        rest = self.items[self.position :]
        for item in rest:
            e.value(item)
        e.build("tuple", len(rest))
        e.call(1)


class BackwardIterator(SequenceIterator):
    """`reversed(list)`: it begins with what was the last element then."""

    __slots__ = ()

    def __init__(self, items: list[Value], owner: Value) -> None:
        super().__init__(items, owner, _BACKWARD)
        self.position = len(items) - 1

    @property
    def step(self) -> int:
        return -1


def _iterator_at(sequence: Any, position: int, *, backward: bool = False) -> Any:
    """An iterator over a list whose next element is that at `position`."""
    made = reversed(sequence) if backward else iter(sequence)
    missing = max(position + backward - len(sequence), 0)
    # What the program put in is put in later, with the other effects; an iterator takes no position past the end.
    list.extend(sequence, (None,) * missing)
    made.__setstate__(position)
    del sequence[len(sequence) - missing :]
    return made


_backward_at = functools.partial(_iterator_at, backward=True)


_LIVE_TYPES: dict[str, type] = {
    "keys": type(iter({})), "values": type(iter({}.values())), "items": type(iter({}.items())), "set": type(iter(set())),
    "ordered": type(iter(collections.OrderedDict())), "deque": type(iter(collections.deque())),
}  # fmt: skip
_CHANGED = {
    "keys": "dictionary changed size during iteration", "set": "Set changed size during iteration",
    "ordered": "OrderedDict mutated during iteration", "deque": "deque mutated during iteration",
}  # fmt: skip


class LiveIterator(IteratorValue):
    """Over a dict, a view of one, a set or a deque, which must not change meanwhile. `what` is keys, values or items."""

    __slots__ = ("changes", "elements", "kind", "made", "owner", "position", "what")

    def __init__(self, owner: Any, what: str, t: Tracer) -> None:
        super().__init__()
        self.owner = owner
        self.what = what
        self.changes = t.heap.containers
        cls = owner.python_type()
        self.kind = (
            "set" if cls in (set, frozenset)
            else "deque" if cls is collections.deque
            else "ordered" if cls is collections.OrderedDict
            else "keys"
        )  # fmt: skip
        self.elements: list[Value] | None = self._elements(t)
        self.made = self._state()
        self.position = 0

    def python_type(self) -> type:
        return _LIVE_TYPES[self.kind if self.kind != "keys" else self.what]

    def _elements(self, t: Tracer) -> list[Value]:
        if self.kind == "set":
            return list(self.owner.ordered(t))
        if self.kind == "deque":
            return list(self.owner.all(t))
        self.owner.guard_all(t)
        return list(self.owner.items)

    def _state(self) -> tuple[int, list[Any]]:
        """What must stay: the number of elements, and which they are."""
        items = self.owner.items
        return len(items), [id(item) for item in items] if self.kind == "deque" else list(items)

    def next(self, t: Tracer) -> Value | None:
        if self.elements is None and self.kind != "deque":
            return None
        now = self._state()
        if now != self.made:
            if self.kind == "ordered" or (self.kind == "deque" and now[0] == self.made[0]):
                raise GraphBreak("unsupported-operation", f"changing {self.owner.describe()} while iterating over it")
            if self.kind == "keys" and now[0] == self.made[0]:
                raise GraphBreak("unsupported-operation", "changing the keys of a dict while iterating over it")
            if now[0] != self.made[0]:
                raise t.exceptions.raised(RuntimeError(_CHANGED[self.kind]))
        if self.elements is None or self.position >= len(self.elements):
            self.elements = None
            return None
        found = self.elements[self.position]
        self.position += 1
        if self.kind in ("set", "deque"):
            return found.realise(t)
        key, value = (part.realise(t) for part in self.owner.items[found])
        return (
            key if self.what == "keys" else value if self.what == "values" else t.wrapper.sequence([key, value], tuple)
        )

    def rebuild(self, e: Any) -> None:
        if self.elements is None and self.kind != "deque":
            e.pinned(_spent)
            e.pinned(self.python_type())
            e.call(1)
            return
        # It goes on over the container as it is: not over a set made anew, nor over what gets its contents later, with the other effects.
        made_anew = self.kind == "set" and self.owner.source is None
        if self._state() != self.made or made_anew or id(self.owner) in self.changes:
            super().rebuild(e)
        e.pinned(_advanced)
        e.value(self.owner)
        e.const(self.position)
        e.const("" if self.kind in ("set", "deque") else self.what)
        e.call(3)


def _advanced(container: Any, position: int, view: str = "") -> Any:
    """An iterator that has given `position` elements."""
    made = iter(getattr(container, view)() if view else container)
    for _ in range(position):
        next(made)
    return made


_EMPTY: tuple[Callable[[], Iterator[Any]], ...] = (
    lambda: iter({}), lambda: iter({}.values()), lambda: iter({}.items()), lambda: iter(set()), lambda: iter(collections.OrderedDict()),
    lambda: iter([]), lambda: reversed([]),
)  # fmt: skip
_SPENT = {type(make()): make for make in _EMPTY}


def _spent(kind: type) -> Any:
    """An iterator of this class that has nothing more to give."""
    made = _SPENT[kind]()
    next(made, None)
    return made


class ComputedIterator(IteratorValue):
    """Calls a Python function of ours for each element; it returns None at the end.

    `parts` gives what `maker` (`cls` itself, where it is not another one) would be called with to go on from here; without it the iterator
    cannot outlive a graph break. With `ends`, it gives nothing more once it came to its end, also where what it draws from would: with "failed" also
    once an exception came out of that.
    """

    __slots__ = ("cls", "ended", "ends", "maker", "parts", "step")

    def __init__(
        self,
        cls: type,
        step: Callable[[Tracer], Value | None],
        parts: Callable[[], Sequence[Value]] | None = None,
        *,
        maker: Any = None,
        ends: Literal["", "reached", "failed"] = "",
    ) -> None:
        super().__init__()
        self.ends = ends
        self.ended = False
        self.cls = cls
        self.maker = maker or cls
        self.step = step
        self.parts = parts

    def rebuild(self, e: Any) -> None:
        if self.parts is None:
            super().rebuild(e)
            return
        parts = self.parts()
        e.pinned(self.maker)
        for part in parts:
            e.value(part)
        e.call(len(parts))

    def python_type(self) -> type:
        return self.cls

    def next(self, t: Tracer) -> Value | None:
        try:
            return self._drawn(t)
        except TracedRaise as error:
            # What a function that the iterator calls raises so is the end for whoever draws.
            if issubclass(error.value.python_type(), StopIteration):
                return None
            raise

    def advance(self, t: Tracer) -> Value:
        found = self._drawn(t)
        if found is None:
            raise t.exceptions.raised(StopIteration())
        return found

    def _drawn(self, t: Tracer) -> Value | None:
        if self.ended:
            return None
        try:
            found = self.step(t)
        except TracedRaise as error:
            stopped = issubclass(error.value.python_type(), StopIteration)
            self.ended = self.ends == "failed" or (stopped and self.ends == "reached")
            raise
        self.ended = found is None and self.ends != ""
        return found


#: What a handler begins with that CPython 3.12 and later put around every generator's body and every `yield from`.
