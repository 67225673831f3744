"""Iterators: over sequences, computed ones (zip, map, enumerate…) and generators.

In: values or a Python function that makes the next value. Out: `next` gives a value or None at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ..interp.signals import GraphBreak, TracedRaise
from ..library import collections, functools
from .base import Value
from .constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..interp.frame import Frame
    from ..interp.tracer import Tracer


class IteratorValue(Value):
    """Abstract."""

    __slots__ = ()

    def iterate(self, t: Tracer) -> Value:
        return self

    def truth(self, t: Tracer) -> bool:
        return True

    def contains(self, t: Tracer, item: Value) -> bool:
        while (found := self.next(t)) is not None:
            if t.same_or_equal(found, item):
                return True
        return False

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.native_attribute(self, name)

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
        found = t.realise(self.items[self.position])
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
                raise t.raised(RuntimeError(_CHANGED[self.kind]))
        if self.elements is None or self.position >= len(self.elements):
            self.elements = None
            return None
        found = self.elements[self.position]
        self.position += 1
        if self.kind in ("set", "deque"):
            return t.realise(found)
        key, value = (t.realise(part) for part in self.owner.items[found])
        return key if self.what == "keys" else value if self.what == "values" else t.sequence([key, value], tuple)

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
            raise t.raised(StopIteration())
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
_COMPILER_MADE = frozenset({"CALL_INTRINSIC_1", "CLEANUP_THROW"})


class GeneratorValue(IteratorValue):
    """A suspended frame."""

    __slots__ = ("done", "frame", "origin", "started")

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame
        self.started = False
        self.done = False
        self.origin: tuple[Value, Sequence[Value], Mapping[str, Value]] | None = None

    def rebuild(self, e: Any) -> None:
        if self.started or self.done or self.origin is None:
            super().rebuild(e)
            return
        function, args, kwargs = self.origin
        e.value(function)
        for value in (*args, *kwargs.values()):
            e.value(value)
        e.call(len(args) + len(kwargs), tuple(kwargs))

    def python_type(self) -> type:
        from types import GeneratorType

        return GeneratorType

    def next(self, t: Tracer) -> Value | None:
        return self.send(t, ConstantValue(None))

    def advance(self, t: Tracer, value: Value | None = None) -> Value:
        found = self.send(t, value or ConstantValue(None))
        if found is None:
            raise t.raised(StopIteration(), value=self.frame.returned)
        return found

    def send(self, t: Tracer, value: Value) -> Value | None:
        """Resume; None when the generator returned (its value is in `frame.returned`)."""
        self._refuse_running(t)
        if self.done:
            return None
        if not self.started:
            t.generators.append(self)
        try:
            yielded = self.frame.resume(value if self.started else None)
        except TracedRaise as error:
            self.done = True
            raise _left_by(t, error) from None
        self.started = True
        if yielded is None:
            self.done = True
        return yielded

    def _refuse_running(self, t: Tracer) -> None:
        """Raise where the generator's own code, or what that called, resumes it."""
        frame: Frame | None = t.frame
        while frame is not None and frame is not self.frame:
            frame = frame.caller
        if frame is not None:
            raise t.raised(ValueError("generator already executing"))

    def has_more_to_do(self) -> bool:
        """Whether Python, once nobody holds it any more, would run the rest of a `with` or `try` that it waits in."""
        if not self.started or self.done:
            return False
        instructions = self.frame.instructions
        handler = instructions[self.frame.index].handler
        while handler is not None and instructions[handler.target].name in _COMPILER_MADE:
            handler = instructions[handler.target].handler
        return handler is not None

    def throw(self, t: Tracer, error: Value) -> Value | None:
        """Raise at the point where the generator waits."""
        self._refuse_running(t)
        if self.done or not self.started:
            self.done = True
            raise TracedRaise(error)
        try:
            yielded = self.frame.throw(error)
        except TracedRaise as raised:
            self.done = True
            raise _left_by(t, raised) from None
        if yielded is None:
            self.done = True
        return yielded

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "send":
            if not (self.started or self.done or (args[0].is_constant() and args[0].constant() is None)):
                raise t.raised(TypeError("can't send non-None value to a just-started generator"))
            return self.advance(t, args[0])
        if name == "throw":
            found = self.throw(t, _thrown(t, args))
            if found is None:
                raise t.raised(StopIteration(), value=self.frame.returned)
            return found
        if name == "close":
            self.close(t)
            return ConstantValue(None)
        return super().call_method(t, name, args, kwargs)

    def close(self, t: Tracer) -> None:
        """GeneratorExit at the point where it waits."""
        if self.done:
            return
        if not self.started:
            self.done = True
            return
        leaving = t.raised(GeneratorExit()).value
        try:
            if self.throw(t, leaving) is not None:
                raise GraphBreak("unsupported-operation", "a generator that ignores GeneratorExit")
        except TracedRaise as error:
            if error.value is not leaving and not issubclass(error.value.python_type(), (GeneratorExit, StopIteration)):
                raise
        self.done = True


def _left_by(t: Tracer, error: TracedRaise) -> TracedRaise:
    """What the caller of a generator sees when an exception leaves it."""
    if not issubclass(error.value.python_type(), StopIteration):
        return error
    made = t.raised(RuntimeError("generator raised StopIteration"))
    made.value.cause = made.value.context = error.value  # type: ignore[attr-defined]
    return made


def _thrown(t: Tracer, args: Sequence[Value]) -> Value:
    """What `throw(error)` raises, or `throw(class, error, traceback)`, as `contextlib` of Python 3.11 says it."""
    kind, *more = args
    if not more or (more[0].is_constant() and more[0].constant() is None):
        return t.exception_instance(kind)
    if not isinstance(kind.real(), type) or not issubclass(more[0].python_type(), kind.real()):
        raise GraphBreak("unsupported-operation", "throw() with an error that is to be made of its second argument")
    return more[0]
