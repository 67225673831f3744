"""Lists, tuples (named tuples, `torch.Size`), deques and slices.

In: element values (perhaps lazy). Out: Python's own operations on them, at trace time. A list that existed before the frame is
marked as mutated in the tracer's heap when it changes; its final contents are replayed.
"""

from __future__ import annotations

import types
from operator import index as as_index
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_name, objects_have
from ..library import collections
from ..signals import GraphBreak, TracedRaise
from .base import Value
from .constants import FALSE, LAST, ONE, ZERO, ConstantValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer


def _slices_come_first() -> bool:
    items = [0]

    def growing() -> Iterator[int]:
        items.append(1)
        yield 2

    items[1:] = growing()
    return len(items) == 3


_SLICES_COME_FIRST = _slices_come_first()
"""Whether the place of a slice is that in the list as it is before its new elements are made (until 3.12.4)."""


def _error_of_no_iterable(index: slice) -> Exception:
    """Python's own words, which differ by version and step."""
    try:
        [][index] = None  # type: ignore[call-overload]
    except TypeError as error:
        return error
    raise AssertionError("None is no iterable")


class SequenceValue(Value):
    """Abstract: values in order, with the Python class `cls`."""

    __slots__ = ("cls", "items")

    def __init__(self, items: list[Value], cls: type, source: Source | None = None) -> None:
        super().__init__(source)
        self.items = items
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def all(self, t: Tracer) -> list[Value]:
        """The elements, none lazy."""
        for i, item in enumerate(self.items):
            self.items[i] = item.realise(t)
        return self.items

    def length(self, t: Tracer) -> Value:
        return ConstantValue(len(self.items))

    def truth(self, t: Tracer) -> bool:
        return bool(self.items)

    def iterate(self, t: Tracer) -> Value:
        from .iterators import LiveIterator, SequenceIterator

        if self.cls is collections.deque:
            return LiveIterator(self, "", t)
        return SequenceIterator(self.items, self if self.cls is list else None)

    def contains(self, t: Tracer, item: Value) -> bool:
        return any(t.operators.same_or_equal(other, item) for other in self.all(t))

    def get_item(self, t: Tracer, key: Value) -> Value:
        index = self.place(t, key)
        if isinstance(index, slice):
            cls = self.cls if self.cls in (list, tuple, torch.Size) else tuple
            if cls is tuple and self.cls is tuple and index.indices(len(self.items)) == (0, len(self.items), 1):
                return self
            return t.wrapper.sequence(self.items[index], cls)
        try:
            return self.items[index].realise(t)
        except IndexError:
            kind = "deque" if self.cls is collections.deque else "list" if self.cls is list else "tuple"
            raise t.exceptions.raised(IndexError(f"{kind} index out of range")) from None

    def place(self, t: Tracer, key: Value) -> Any:
        """The integer or slice that a subscript is; with any other one, Python has an error to tell."""
        index = t.operators.index_or_slice(key)
        if isinstance(index, slice) and self.cls is not collections.deque:
            if all(part is None or isinstance(part, int) for part in (index.start, index.stop, index.step)):
                if index.step == 0:
                    raise t.exceptions.raised(ValueError("slice step cannot be zero"))
                return index
        elif isinstance(index, int):
            return index
        raise GraphBreak("unsupported-operation", f"{key.describe()} as the subscript of {self.describe()}")

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name not in self.methods or not objects_have(self.cls, name):
            return t.caller.generic_method(self, name, args, kwargs)
        return t.folder.run_method(self, self.methods, name, args, kwargs)

    methods: dict[str, Callable[..., Value | None]] = {}

    def m_index(self, t: Tracer, item: Value, start: Value = ZERO, stop: Value | None = None) -> Value:
        begin = as_index(t.folder.concrete(start))
        end = len(self.items) if stop is None else as_index(t.folder.concrete(stop))
        for i in range(len(self.items))[begin:end]:
            if t.operators.same_or_equal(self.items[i].realise(t), item):
                return ConstantValue(i)
        raise ValueError

    def m_count(self, t: Tracer, item: Value) -> Value:
        return ConstantValue(sum(t.operators.same_or_equal(other, item) for other in self.all(t)))


class TupleValue(SequenceValue):
    """A tuple, `torch.Size` or a named tuple."""

    __slots__ = ("attrs",)
    methods = {"index": SequenceValue.m_index, "count": SequenceValue.m_count}

    def hashed_parts(self) -> Iterable[Value]:
        return self.items

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        if self.cls is not tuple:
            e.pinned(_make_named if hasattr(self.cls, "_fields") else self.cls)
            if hasattr(self.cls, "_fields"):
                e.pinned(self.cls)
        for item in self.items:
            e.value(item)
        e.build("tuple", len(self.items))
        if self.cls is not tuple:
            e.call(2 if hasattr(self.cls, "_fields") else 1)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        fields = getattr(self.cls, "_fields", None)
        if fields is None and isinstance(getattr(self.cls, "n_fields", None), int):
            fields = _structseq_fields(self.cls)
        if fields is not None and name in fields:
            return self.items[fields.index(name)].realise(t)
        if name == "__class__":
            return t.wrapper.wrap_pinned(self.cls)
        found = t.members.class_lookup(self.cls, name)
        if hasattr(found, "__get__") and not _is_builtin_method(found):
            return t.attributes.bind_class_attribute(self, self.cls, name, found)
        if name == "_fields":
            return t.wrapper.from_python(fields)
        return super().get_attribute(t, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if self.cls is torch.Size and name == "numel":
            total: Value = ConstantValue(1)
            for item in self.all(t):
                total = t.operators.binary("*", total, item)
            return total
        return super().call_method(t, name, args, kwargs)


def _structseq_fields(cls: type) -> tuple[str, ...]:
    return tuple(name for name, member in vars(cls).items() if class_name(type(member)) == "member_descriptor")


def _is_builtin_method(found: Any) -> bool:
    return class_name(type(found)) in (
        "method_descriptor",
        "wrapper_descriptor",
        "builtin_function_or_method",
        "classmethod_descriptor",
    )


def is_plain_named(cls: Any) -> bool:
    """Whether a class of tuples with named fields has no special method but those that it gets from `tuple` and `namedtuple`."""
    if not issubclass(cls, tuple) or not hasattr(cls, "_fields"):
        return False
    own = [pair for base in cls.__mro__[: cls.__mro__.index(tuple)] for pair in vars(base).items()]
    return all(_is_of_namedtuple(member) for name, member in own if name.startswith("__") and name not in _IN_CLASSES)


_IN_CLASSES = frozenset(("__init_subclass__", "__class_getitem__", "__classcell__", "__dict__", "__weakref__"))
"""Descriptors and methods that an instance's own operations do not come to."""


def _is_of_namedtuple(member: Any) -> bool:
    member = member.__func__ if isinstance(member, staticmethod) else member  # `__new__`
    if isinstance(member, types.FunctionType):
        return member.__module__ == "collections" or "_tuple_new" in member.__globals__
    return not callable(member) and not hasattr(type(member), "__get__")


def _make_named(cls: Any, items: tuple[Any, ...]) -> Any:
    """A named tuple from its items, whatever its `__new__` takes."""
    return tuple.__new__(cls, items)


class ListValue(SequenceValue):
    """A list or a deque."""

    __slots__ = ("maxlen",)

    def __init__(
        self, items: list[Value], cls: type = list, source: Source | None = None, maxlen: int | None = None
    ) -> None:
        super().__init__(items, cls, source)
        self.maxlen = maxlen

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
        elif self.cls is list:
            e.build("list", 0)
        else:
            e.pinned(collections.deque)
            e.build("tuple", 0)
            e.const(self.maxlen)
            e.call(2)

    def fill(self, e: Any) -> None:
        if self.source is not None or not self.items:
            return
        e.value(self)
        e.attr("extend")
        for item in self.items:
            e.value(item)
        e.build("list", len(self.items))
        e.call(1)
        e.pop()

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "maxlen" and self.cls is collections.deque:
            return ConstantValue(self.maxlen)
        return super().get_attribute(t, name)

    def changed(self, t: Tracer) -> None:
        """Tell the heap before a change."""
        t.heap.changed(self)

    def with_items(self, items: list[Value]) -> ListValue:
        """A fresh one of the same kind."""
        made = ListValue(items, self.cls, maxlen=self.maxlen)
        made.trim()
        return made

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        index = self.place(t, key)
        new: Any = value
        if isinstance(index, slice):
            if not objects_have(value.python_type(), "__iter__") and not objects_have(
                value.python_type(), "__getitem__"
            ):
                raise t.exceptions.raised(_error_of_no_iterable(index))
            length = len(self.items)
            new = t.operators.collect(value)
            if _SLICES_COME_FIRST and len(self.items) != length:
                index = self._place_before(index, length)
        try:
            self.items[index] = new
        except (IndexError, ValueError) as error:
            raise self._outside(t, error) from None
        self.changed(t)

    def _place_before(self, index: slice, length: int) -> slice:
        """The place that a slice had before the maker of its new elements changed the list."""
        if index.step not in (None, 1):
            raise GraphBreak("unsupported-call", "the maker of the elements of an extended slice changes the list")
        return slice(*index.indices(length))

    def delete_item(self, t: Tracer, key: Value) -> None:
        index = self.place(t, key)
        try:
            del self.items[index]
        except IndexError as error:
            raise self._outside(t, error) from None
        self.changed(t)

    def _outside(self, t: Tracer, error: Exception) -> Exception:
        return t.exceptions.raised(IndexError("deque index out of range") if self.cls is collections.deque else error)

    def trim(self, *, left: bool = False) -> None:
        """Drop what a deque with a bound has too many."""
        while self.maxlen is not None and len(self.items) > self.maxlen:
            self.items.pop(-1 if left else 0)

    def m_append(self, t: Tracer, item: Value) -> None:
        self.changed(t)
        self.items.append(item)
        self.trim()

    def m_appendleft(self, t: Tracer, item: Value) -> None:
        self.changed(t)
        self.items.insert(0, item)
        self.trim(left=True)

    def m_extend(self, t: Tracer, items: Value) -> None:
        self.changed(t)
        for item in self._one_by_one(t, items):
            self.items.append(item)
            self.trim()

    def m_extendleft(self, t: Tracer, items: Value) -> None:
        for item in self._one_by_one(t, items):
            self.m_appendleft(t, item)

    def _one_by_one(self, t: Tracer, items: Value) -> Iterable[Value]:
        """What is added: each is there before the next is asked for, but of its own those that it has now."""
        if items.realise(t) is self:
            return list(self.all(t))
        return (
            t.operators.iterate_all(items) if self.cls is collections.deque else t.operators.iterate_for_a_list(items)
        )

    def m_insert(self, t: Tracer, index: Value, item: Value) -> None:
        place = t.folder.integer(index)
        if self.maxlen is not None and len(self.items) >= self.maxlen:
            raise IndexError
        self.changed(t)
        self.items.insert(place, item)

    def m_pop(self, t: Tracer, index: Value = LAST) -> Value:
        found = self.items.pop(t.folder.integer(index)).realise(t)
        self.changed(t)
        return found

    def m_pop_right(self, t: Tracer) -> Value:
        return self.m_pop(t)

    def m_popleft(self, t: Tracer) -> Value:
        return self.m_pop(t, ZERO)

    def m_clear(self, t: Tracer) -> None:
        self.changed(t)
        self.items.clear()

    def m_copy(self, t: Tracer) -> Value:
        return ListValue(list(self.items), self.cls, maxlen=self.maxlen)

    def m_reverse(self, t: Tracer) -> None:
        self.changed(t)
        self.items.reverse()

    def m_rotate(self, t: Tracer, steps: Value = ONE) -> None:
        count = t.folder.integer(steps)
        self.changed(t)
        if self.items:
            count %= len(self.items)
            self.items[:] = self.items[-count:] + self.items[:-count] if count else self.items

    def m_remove(self, t: Tracer, item: Value) -> None:
        for i, other in enumerate(self.all(t)):
            if t.operators.same_or_equal(other, item):
                self.changed(t)
                del self.items[i]
                return
        raise ValueError

    def m_sort(self, t: Tracer, *, key: Value | None = None, reverse: Value = FALSE) -> None:
        items = list(self.all(t))
        self.changed(t)
        self.items.clear()  # as its keys see it
        try:
            new = t.operators.sort(items, key, t.folder.flag(reverse))
        except TracedRaise:
            self.items[:] = items
            raise
        if self.items:
            raise GraphBreak("unsupported-operation", "a list is changed while it is sorted")
        self.items[:] = new

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name in _DEQUE_METHODS and self.cls is collections.deque:
            return t.folder.run_method(self, _DEQUE_METHODS, name, args, kwargs)
        return super().call_method(t, name, args, kwargs)

    methods = {
        "index": SequenceValue.m_index, "count": SequenceValue.m_count, "append": m_append, "appendleft": m_appendleft,
        "extend": m_extend, "extendleft": m_extendleft, "insert": m_insert, "pop": m_pop, "popleft": m_popleft, "clear": m_clear,
        "copy": m_copy, "reverse": m_reverse, "remove": m_remove, "sort": m_sort, "rotate": m_rotate,
    }  # fmt: skip


_DEQUE_METHODS: dict[str, Callable[..., Value | None]] = {"pop": ListValue.m_pop_right}
"""Where a deque's method takes other arguments than a list's."""


class SliceValue(Value):
    """A slice from outside, or with a part that is not a constant."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Value, Value, Value], source: Source | None = None) -> None:
        super().__init__(source)
        self.parts = parts

    def python_type(self) -> type:
        return slice

    def truth(self, t: Tracer) -> bool:
        return True

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(slice)
        for part in self.parts:
            e.value(part)
        e.call(3)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return self.parts[("start", "stop", "step").index(name)].realise(t)
        if name == "indices":
            from .bound import BoundBuiltin

            return BoundBuiltin(self, name)
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        bounds = slice(*(t.folder.concrete(part) for part in self.parts))
        given = [ConstantValue(t.folder.concrete(arg)) for arg in args]
        return t.folder.fold_method(ConstantValue(bounds), name, given, kwargs)
