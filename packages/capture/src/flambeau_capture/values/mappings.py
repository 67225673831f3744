"""Dicts (ordered and default ones), read-only proxies of them, and their views.

In: keys and values. Out: Python's own operations at trace time. A key is looked up by what it hashes to for real: constants by
value, objects that existed before the frame by themselves, anything else by identity of its stand-in.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..class_names import objects_have
from ..library import collections, gc
from ..signals import GraphBreak
from .base import MISSING, Value
from .constants import NONE, TRUE, ConstantValue
from .keys import assume_object, is_compared_by_identity, real_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer


def order_tells_all(obj: Any) -> bool:
    """Whether an `OrderedDict`'s order names each of its items and no other: methods of `dict` that are called on one leave it as it is."""
    try:
        return dict.__len__(obj) == sum(1 for _ in collections.OrderedDict.__iter__(obj))
    except KeyError:  # it names an item that is gone
        return False


def shown_by(proxy: Any) -> Any:
    """The dict that a mappingproxy shows; None where it shows another mapping."""
    found = gc.get_referents(proxy)
    return found[0] if len(found) == 1 and isinstance(found[0], dict) else None


class DictValue(Value):
    """A dict. `origin` is the real one while nobody asked for its order or length (only its single keys are guarded)."""

    __slots__ = ("cls", "default", "guarded_keys", "items", "origin", "shows")

    def __init__(
        self,
        items: dict[Any, tuple[Value, Value]],
        cls: type = dict,
        source: Source | None = None,
        default: Value | None = None,
        origin: Any = None,
    ) -> None:
        super().__init__(source)
        self.items = items
        self.cls = cls
        self.default = default
        self.origin = origin
        self.shows = origin  # the real one, for good: it may be some object's `__dict__`
        self.guarded_keys: set[Any] = set()

    def python_type(self) -> type:
        return self.cls

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
        elif self.cls is dict:
            e.build("dict", 0)
        elif self.cls is collections.defaultdict:
            e.pinned(collections.defaultdict)
            e.value(self.default)
            e.call(1)
        else:
            e.pinned(self.cls)
            e.call(0)

    def fill(self, e: Any) -> None:
        if self.source is not None or not self.items:
            return
        e.value(self)
        e.attr("update")
        for key, value in self.items.values():
            e.value(key)
            e.value(value)
        e.build("dict", len(self.items))
        e.call(1)
        e.pop()

    def guard_all(self, t: Tracer) -> None:
        """Assume the keys and their order."""
        if self.shows is not None:
            t.heap.refuse_stored(self.shows)
        self.assume_all(t)

    def assume_all(self, t: Tracer) -> None:
        """The same, where it is known what was stored."""
        if self.origin is not None and self.source is not None:
            t.guards.dict_keys(self.source, self.origin)
            self.origin = None

    def guard_key(self, t: Tracer, key: Any, value: Value) -> None:
        """Assume that one key is there, or not; `key` is what `value` hashes to."""
        if self.shows is not None:
            t.heap.refuse_stored(self.shows)
        self.assume_key(t, key, value)

    def assume_key(self, t: Tracer, key: Any, value: Value) -> None:
        """The same, where it is known what was stored."""
        if self.origin is None or self.source is None or key in self.guarded_keys:
            return
        self.guarded_keys.add(key)
        if not is_compared_by_identity(value, key):
            t.guards.contains(self.source, self.origin, key)
        elif (real := real_key(t, value)) is not MISSING:
            t.guards.contains(self.source, self.origin, real)

    def changed(self, t: Tracer) -> None:
        """Tell the heap before a change."""
        self.guard_all(t)
        t.heap.changed(self)

    def hashed(self, t: Tracer, key: Value) -> Any:
        """What a key hashes to; which object it is, is assumed."""
        hashed = t.wrapper.hashable(key)
        if is_compared_by_identity(key, hashed):
            present = hashed in self.items
            known = assume_object(t, key, present, [there for there, _ in self.items.values()])
            if known and not present:
                self.guard_all(t)
        return hashed

    def lookup(self, t: Tracer, key: Value) -> Value | None:
        """The value under `key`, or None."""
        hashed = self.hashed(t, key)
        self.guard_key(t, hashed, key.realise(t))
        pair = self.items.get(hashed)
        return None if pair is None else pair[1].realise(t)

    def get_item(self, t: Tracer, key: Value) -> Value:
        found = self.lookup(t, key)
        if found is not None:
            return found
        if self.cls is collections.defaultdict and self.default is not None and not self.default.is_constant():
            made = self.default.call(t, [], {})
            self.set_item(t, key, made)
            return made
        raise self.missing_key(t, key)

    def missing_key(self, t: Tracer, key: Value) -> Exception:
        """The KeyError that carries the key itself."""
        if self.cls is collections.OrderedDict and key.realise(t).python_type() is type(None):
            raise GraphBreak("unsupported-operation", "the key None, which an ordered dict leaves out of its KeyError")
        return t.exceptions.raised(KeyError(), value=key.realise(t))

    def is_proxy(self) -> bool:
        """Whether it shows a dict that somebody else has."""
        return self.cls is types.MappingProxyType

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        hashed = self.hashed(t, key)
        old = self.items.get(hashed)
        if old is not None and old[1] is value:
            return
        self.changed(t)
        self.items[hashed] = (old[0] if old else key, value)

    def delete_item(self, t: Tracer, key: Value) -> None:
        hashed = self.hashed(t, key)
        if hashed not in self.items:
            self.guard_key(t, hashed, key.realise(t))
            raise self.missing_key(t, key)
        self.changed(t)
        del self.items[hashed]

    def contains(self, t: Tracer, item: Value) -> bool:
        hashed = self.hashed(t, item)
        self.guard_key(t, hashed, item.realise(t))
        return hashed in self.items

    def length(self, t: Tracer) -> Value:
        self.guard_all(t)
        return ConstantValue(len(self.items))

    def truth(self, t: Tracer) -> bool:
        self.guard_all(t)
        return bool(self.items)

    def keys(self, t: Tracer) -> list[Value]:
        """The keys in order."""
        self.guard_all(t)
        return [key.realise(t) for key, _ in self.items.values()]

    def values(self, t: Tracer) -> list[Value]:
        """The values in order."""
        self.guard_all(t)
        return [value.realise(t) for _, value in self.items.values()]

    def iterate(self, t: Tracer) -> Value:
        from .iterators import LiveIterator

        return LiveIterator(self, "keys", t)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default or ConstantValue(None)
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name not in self.methods or not objects_have(self.cls, name):
            return t.caller.generic_method(self, name, args, kwargs)
        if name in _PLAIN_METHODS and self.cls is not collections.OrderedDict:
            return t.folder.run_method(self, _PLAIN_METHODS, name, args, kwargs)
        return t.folder.run_method(self, self.methods, name, args, kwargs)

    def m_get(self, t: Tracer, key: Value, default: Value = NONE) -> Value:
        found = self.lookup(t, key)
        return default if found is None else found

    def m_keys(self, t: Tracer) -> Value:
        return DictView(self, "keys")

    def m_values(self, t: Tracer) -> Value:
        return DictView(self, "values")

    def m_items(self, t: Tracer) -> Value:
        return DictView(self, "items")

    def m_setdefault(self, t: Tracer, key: Value, default: Value = NONE) -> Value:
        found = self.lookup(t, key)
        if found is not None:
            return found
        self.set_item(t, key, default)
        return default

    def m_pop(self, t: Tracer, key: Value, default: Value | None = None) -> Value:
        if not self.items and self.cls is not collections.OrderedDict:
            self.guard_all(t)
            found = None  # Python does not hash the key
        else:
            found = self.lookup(t, key)
        if found is None:
            if default is None:
                raise self.missing_key(t, key)
            return default
        self.delete_item(t, key)
        return found

    def m_popitem(self, t: Tracer, last: Value = TRUE) -> Value:
        self.changed(t)
        if not self.items:
            raise KeyError
        hashed = list(self.items)[-1 if last.truth(t) else 0]
        key, value = self.items.pop(hashed)
        return t.wrapper.sequence([key.realise(t), value.realise(t)], tuple)

    def m_popitem_plain(self, t: Tracer) -> Value:
        return self.m_popitem(t)

    def m_update(self, t: Tracer, other: Value | None = None, /, **named: Value) -> None:
        for key, value in () if other is None else t.operators.mapping_items(other):
            self.set_item(t, key, value)
        for name, value in named.items():
            self.set_item(t, ConstantValue(name), value)

    def m_clear(self, t: Tracer) -> None:
        self.changed(t)
        self.items.clear()

    def m_copy(self, t: Tracer) -> Value:
        self.guard_all(t)
        return DictValue(dict(self.items), self.cls, default=self.default)

    def m_move_to_end(self, t: Tracer, key: Value, last: Value = TRUE) -> None:
        if not self.items:
            self.guard_all(t)
            raise self.missing_key(t, key)  # Python does not hash the key
        hashed = self.hashed(t, key)
        if hashed not in self.items:
            self.guard_key(t, hashed, key.realise(t))
            raise self.missing_key(t, key)
        self.changed(t)
        pair = self.items.pop(hashed)
        if last.truth(t):
            self.items[hashed] = pair
        else:
            rest = dict(self.items)
            self.items.clear()
            self.items[hashed] = pair
            self.items.update(rest)

    def m_getitem(self, t: Tracer, key: Value) -> Value:
        return self.get_item(t, key)

    def m_setitem(self, t: Tracer, key: Value, value: Value) -> None:
        self.set_item(t, key, value)

    methods: dict[str, Callable[..., Value | None]] = {
        "get": m_get, "keys": m_keys, "values": m_values, "items": m_items, "setdefault": m_setdefault, "pop": m_pop, "popitem": m_popitem,
        "update": m_update, "clear": m_clear, "copy": m_copy, "move_to_end": m_move_to_end, "__getitem__": m_getitem, "__setitem__": m_setitem,
    }  # fmt: skip


_PLAIN_METHODS: dict[str, Callable[..., Value | None]] = {"popitem": DictValue.m_popitem_plain}
"""Where a dict's method takes other arguments than an ordered one's."""


class ProxyValue(DictValue):
    """A read-only view of a dict that somebody else holds (`types.MappingProxyType`, `vars(cls)`): every key that is asked for is guarded."""

    __slots__ = ()

    def __init__(self, items: dict[Any, tuple[Value, Value]], source: Source, origin: Any) -> None:
        super().__init__(items, types.MappingProxyType, source, origin=origin)
        self.shows = shown_by(origin)

    def guard_all(self, t: Tracer) -> None:
        self._refuse_changes(t)
        super().guard_all(t)

    def guard_key(self, t: Tracer, key: Any, value: Value) -> None:
        self._refuse_changes(t)
        super().guard_key(t, key, value)

    def _refuse_changes(self, t: Tracer) -> None:
        """Break where the frame has changed what it shows; what is no dict may show anything."""
        if self.shows is not None:
            t.heap.refuse_written(self.shows)
        elif any(t.heap.size()):
            raise GraphBreak("unsupported-operation", "reading a mappingproxy of no dict after a change")

    def set_item(self, t: Tracer, key: Value, value: Value) -> None:
        raise GraphBreak("unsupported-store", "writing to a mappingproxy")

    def delete_item(self, t: Tracer, key: Value) -> None:
        raise GraphBreak("unsupported-store", "writing to a mappingproxy")

    def m_copy(self, t: Tracer) -> Value:
        self.guard_all(t)
        return DictValue(dict(self.items))

    methods = {name: DictValue.methods[name] for name in ("get", "keys", "values", "items", "__getitem__")} | {
        "copy": m_copy
    }


_VIEW_TYPES: dict[str, type] = {"keys": type({}.keys()), "values": type({}.values()), "items": type({}.items())}


class DictView(Value):
    """`d.keys()`, `d.values()` or `d.items()`: live, as in Python."""

    __slots__ = ("dict", "kind")

    def __init__(self, of: DictValue, kind: str) -> None:
        super().__init__()
        self.dict = of
        self.kind = kind

    def python_type(self) -> type:
        return _VIEW_TYPES[self.kind]

    def rebuild(self, e: Any) -> None:
        e.value(self.dict)
        e.attr(self.kind)
        e.call(0)

    def elements(self, t: Tracer) -> list[Value]:
        """What iterating gives."""
        if self.kind == "keys":
            return self.dict.keys(t)
        if self.kind == "values":
            return self.dict.values(t)
        return [
            t.wrapper.sequence([key, value], tuple)
            for key, value in zip(self.dict.keys(t), self.dict.values(t), strict=True)
        ]

    def iterate(self, t: Tracer) -> Value:
        from .iterators import LiveIterator

        return LiveIterator(self.dict, self.kind, t)

    def length(self, t: Tracer) -> Value:
        return self.dict.length(t)

    def truth(self, t: Tracer) -> bool:
        return self.dict.truth(t)

    def contains(self, t: Tracer, item: Value) -> bool:
        if self.kind == "keys":
            return self.dict.contains(t, item)
        return any(t.operators.same_or_equal(other, item) for other in self.elements(t))

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attributes.native_attribute(self, name)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "isdisjoint":
            return ConstantValue(not any(self.contains(t, item) for item in t.operators.iterate_all(args[0])))
        return t.caller.generic_method(self, name, args, kwargs)
