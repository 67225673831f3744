"""Sets and frozensets.

In: members. Out: Python's own operations at trace time. What the members hash to lies in a real set besides, on which every operation is done
too, since a set's order is that of its table and its history. The order of objects that only this process knows is not known while tracing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..class_names import objects_have
from ..constant_objects import is_constant_object
from ..library import itertools
from ..signals import GraphBreak
from .base import Value
from .builtins import BuiltinValue, ClassValue
from .constants import ConstantValue
from .keys import assume_members, assume_object, is_compared_by_identity
from .mappings import DictValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer

_COMBINE = ("union", "intersection", "difference", "symmetric_difference")
_UPDATE = ("update", "intersection_update", "difference_update", "symmetric_difference_update")
_ASK = ("issubset", "issuperset", "isdisjoint")
_ONE = (
    "add", "discard", "remove", "clear", "pop", "symmetric_difference", "symmetric_difference_update", "issubset", "issuperset", "isdisjoint"
)  # fmt: skip


class SetValue(Value):
    """A set or frozenset: members by what they hash to; `table` has their order. `origin` is the real one while it is unchanged."""

    __slots__ = ("cls", "items", "origin", "table")

    def __init__(
        self, members: Mapping[Any, Value], cls: type = set, source: Source | None = None, table: Any = None
    ) -> None:
        super().__init__(source)
        self.items = dict(members)
        self.cls = cls
        self.table = cls(members) if table is None else table
        self.origin = table if source is not None else None

    def hashed_parts(self) -> Iterable[Value]:
        return self.items.values()

    def python_type(self) -> type:
        return self.cls

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        if all(_is_the_object(item, key) for key, item in self.items.items()):
            found = self.table if self.cls is frozenset else _twin(self.table, self.items)
            if found is None:
                super().rebuild(e)
            e.pinned(found if self.cls is frozenset else set)
            if self.cls is set:
                e.pinned(found)
                e.call(1)
            return
        e.pinned(self.cls)
        for item in self.as_added():
            e.value(item)
        e.build("tuple", len(self.items))
        e.call(1)

    def as_added(self) -> list[Value]:
        """The members in the order in which they came in: one by one, they make the same table again."""
        return list(self.items.values())

    def length(self, t: Tracer) -> Value:
        return ConstantValue(len(self.items))

    def truth(self, t: Tracer) -> bool:
        return bool(self.items)

    def contains(self, t: Tracer, item: Value) -> bool:
        item = item.realise(t)
        if isinstance(item, SetValue):
            return frozenset(item.items) in self.items
        return self.hashed(t, item) in self.items

    def hashed(self, t: Tracer, item: Value) -> Any:
        """What a member hashes to; which object it is, is assumed."""
        key = t.wrapper.hashable(item)
        if is_compared_by_identity(item, key):
            assume_object(t, item, key in self.items, self.items.values())
        return key

    def ordered(self, t: Tracer) -> list[Value]:
        """The members in Python's order, which is guarded for a set from outside."""
        if self.origin is not None and self.source is not None:
            t.guards.dict_keys(self.source, self.origin)
        elif len(self.items) > 1 and not all(is_constant_object(key) for key in self.items):
            raise GraphBreak("unsupported-operation", "the order of a set of objects that are not constants")
        return [self.items[key].realise(t) for key in self.table]

    def iterate(self, t: Tracer) -> Value:
        from .iterators import LiveIterator

        return LiveIterator(self, "keys", t)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attributes.native_attribute(self, name)

    def add(self, t: Tracer, item: Value) -> None:
        """`add`, also of a frozenset that is being made."""
        key = self.hashed(t, item)
        self._own(t)
        if key not in self.items:
            self.table = self.table | {key} if self.cls is frozenset else self.table
            self.items[key] = item
            if self.cls is set:
                self.table.add(key)

    def _own(self, t: Tracer) -> None:
        """Before a change."""
        t.heap.changed(self)
        if self.origin is not None:
            self.table = self.table.copy()
            self.origin = None

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        known = name in _COMBINE or name in _ASK or name == "copy"
        if not known and not (self.cls is set and (name in _UPDATE or name in _ONE)):
            return t.caller.generic_method(self, name, args, kwargs)
        if kwargs or (name in _ONE and len(args) != (name not in ("clear", "pop"))) or (name == "copy" and args):
            t.folder.real_error(getattr(self.cls, name), [self, *args], kwargs)
        if name in ("update", "difference_update"):
            for arg in args:
                self._update(t, name, arg.realise(t))
            return ConstantValue(None)
        if name in _COMBINE or name in _UPDATE:
            return self._combine(t, name, args)
        if name in _ASK:
            return ConstantValue(self._ask(t, name, args[0].realise(t)))
        if name == "copy":
            if self.cls is frozenset:
                return self
            return SetValue(self.items, set, table=self.table.copy())
        return self._mutate(t, name, args)

    def _ask(self, t: Tracer, name: str, other: Value) -> bool:
        """`issubset` and the like. Of what is no set or dict Python asks for no more than it needs, but for `issubset`."""
        if name == "issubset" and objects_have(other.python_type(), "__next__"):
            raise GraphBreak(
                "unsupported-call", "issubset of an iterator, of which CPython takes more or less by its version"
            )
        if name == "issubset" or issubclass(other.python_type(), (set, frozenset)):
            table, members = members_of(t, other)
            assume_members(t, members, self.items)
            return bool(getattr(self.table, name)(table))
        wanted = name == "issuperset"
        return all((self.hashed(t, item) in self.items) is wanted for item in t.operators.iterate_all(other))

    def _update(self, t: Tracer, name: str, other: Value) -> None:
        """Members of what is no table go in, or out, one by one: each before the next is asked for."""
        if isinstance(other, (SetValue, DictValue)) or other.python_type() is frozenset:
            self._combine(t, name, [other])
            return
        self._own(t)
        for item in t.operators.iterate_all(other):
            if name == "update":
                self.add(t, item)
            elif (key := self.hashed(t, item)) in self.items:
                self.table.discard(key)
                del self.items[key]

    def _combine(self, t: Tracer, name: str, args: Sequence[Value]) -> Value:
        others, known = [], dict(self.items)
        for arg in args:
            table, members = members_of(t, arg)
            assume_members(t, members, known)
            others.append(table)
            known = {**members, **known}
        if name in _UPDATE:
            self._own(t)
            getattr(self.table, name)(*others)
            self.items = _in_order(name, known, self.items, others, self.table)
            return ConstantValue(None)
        made = getattr(self.table, name)(*others)
        return SetValue(_in_order(name, known, self.items, others, made), self.cls, table=made)

    def _mutate(self, t: Tracer, name: str, args: Sequence[Value]) -> Value:
        if name == "add":
            self.add(t, args[0])
            return ConstantValue(None)
        if name == "pop":
            if self.source is not None and self.items:
                raise GraphBreak("unsupported-call", "set.pop takes a member in an order that is not known")
            self.ordered(t)
            if not self.items:
                t.folder.real_error(set.pop, [self], {})
            return self.items.pop(self.table.pop())
        if name != "clear":
            key = frozenset(args[0].items) if isinstance(args[0], SetValue) else self.hashed(t, args[0])
            if key not in self.items:
                if name == "remove":
                    t.folder.real_error(set.remove, [self, *args], {})
                return ConstantValue(None)
        self._own(t)
        if name == "clear":
            self.table.clear()
            self.items.clear()
        else:
            self.table.discard(key)
            del self.items[key]
        return ConstantValue(None)


def _is_the_object(item: Value, key: Any) -> bool:
    """Whether a member is at every call what it is while tracing."""
    if isinstance(item, (ClassValue, BuiltinValue)):
        return item.real() is key
    return item.is_constant() and is_constant_object(key)


def _in_order(
    name: str, known: Mapping[Any, Value], own: Iterable[Any], others: Iterable[Iterable[Any]], made: Any
) -> dict[Any, Value]:
    """The members of what an operation made of a set and others, in the order in which Python puts them in."""
    if name.startswith("symmetric"):
        others = [other if isinstance(other, (set, frozenset, dict)) else set(other) for other in others]
    order = [*own, *itertools.chain(*others)]
    if name == "symmetric_difference":
        order = [*itertools.chain(*others), *own]
    elif name.startswith("intersection"):
        order = list(made)
    return {key: known[key] for key in order if key in made}


def _twin(table: set[Any], added: Iterable[Any]) -> set[Any] | tuple[Any, ...] | None:
    """What `set` makes a set of that has its members in the order of `table`, best in a table of the same size, so that they also stay so."""
    made = [(source, set(source)) for source in (table.copy(), tuple(added), tuple(table))]
    alike = [(source, other) for source, other in made if list(other) == list(table)]
    alike.sort(key=lambda pair: sys.getsizeof(pair[1]) != sys.getsizeof(table))
    return alike[0][0] if alike else None


def members_of(t: Tracer, value: Value) -> tuple[Any, dict[Any, Value]]:
    """What the members of an iterable hash to, in a real set where it is one, and the members by that."""
    value = value.realise(t)
    storage = getattr(value, "storage", None)
    if isinstance(storage, SetValue):
        value = storage  # what the class says of its iteration is not asked
    if isinstance(value, SetValue):
        return value.table, value.items
    members: Iterable[Value] = list(t.operators.iterate_all(value))
    pairs = [(t.wrapper.hashable(item), item) for item in members]
    by_hash: dict[Any, Value] = {}
    for key, item in pairs:
        if is_compared_by_identity(item, key):
            assume_object(t, item, key in by_hash, by_hash.values())
        by_hash.setdefault(key, item)
    if value.is_constant() and isinstance(value.constant(), frozenset):
        return value.constant(), by_hash
    return by_hash if isinstance(value, DictValue) else [key for key, _ in pairs], by_hash


def set_of(t: Tracer, value: Value | None, cls: type = set) -> Value:
    """`set(value)` or `frozenset(value)`."""
    if value is None:
        return SetValue({}, cls)
    if isinstance(value, SetValue) and cls is frozenset and value.cls is frozenset:
        return value
    table, members = members_of(t, value)
    return SetValue(members, cls, table=cls(table))
