"""Recorded effects to code.

In: the effects of a frame, in order, and an emitter whose values are all prepared (`values_of` says which they are).
Out: instructions that make the changes for real. Containers keep their identity; aliases are kept because `emitter.value` makes
each object once. No method that a user's subclass may have overridden is run twice: the base type's own is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..captured import (
    CallFunction,
    DeleteAttribute,
    DeleteGlobal,
    Effect,
    ReplaceItems,
    SetAttribute,
    SetCell,
    SetGlobal,
)
from ..errors import InternalError
from ..library import collections, contextlib
from ..values.base import Value
from .emitter import Emitter


def values_of(effect: Effect) -> Iterator[Value]:
    """The values an effect needs."""
    match effect:
        case SetAttribute(target=target, value=value):
            yield from (target, value)
        case DeleteAttribute(target=target):
            yield target
        case SetGlobal(value=value):
            yield value
        case DeleteGlobal():
            return
        case SetCell(cell=cell, value=value):
            yield from (cell, value)
        case ReplaceItems(target=target, items=items):
            yield target
            yield from items
        case CallFunction(function=function, args=args):
            yield function
            yield from args
        case _:
            raise InternalError(f"no code is known for the effect {type(effect).__name__}")


def replay(e: Emitter, effect: Effect) -> None:
    """Emit the change; the stack is as before."""
    match effect:
        case SetAttribute(target=target, name=name, value=value, plain=plain):
            _set_attribute(e, target, name, value, plain)
        case DeleteAttribute(target=target, name=name):
            e.pinned(remove_attribute)
            e.value(target)
            e.const(name)
            e.call(2)
            e.pop()
        case SetGlobal(namespace=None, name=name, value=value):
            e.value(value)
            e.op("STORE_GLOBAL", value=name)
        case SetGlobal(namespace=namespace, name=name, value=value):
            e.value(value)
            e.pinned(namespace)
            e.const(name)
            e.store_subscript()
        case DeleteGlobal(namespace=namespace, name=name):
            _delete_global(e, namespace, name)
        case SetCell(cell=cell, value=value):
            e.value(value)
            e.value(cell)
            e.store_attr("cell_contents")
        case ReplaceItems(target=target, kind=kind, items=items):
            _replace_items(e, target, kind, items)
        case CallFunction(function=function, args=args):
            e.value(function)
            for argument in args:
                e.value(argument)
            e.call(len(args))
            e.pop()
        case _:
            raise InternalError(f"no code is known for the effect {type(effect).__name__}")


def _delete_global(e: Emitter, namespace: dict[str, Any] | None, name: str) -> None:
    """Make sure the global is gone; one that the traced program itself made was never there."""
    if namespace is None:
        e.pinned(globals)
        e.call(0)
    else:
        e.pinned(namespace)
    e.attr("pop")
    e.const(name)
    e.const(None)
    e.call(2)
    e.pop()


def _set_attribute(e: Emitter, target: Value, name: str, value: Value, plain: bool) -> None:
    if not plain:
        e.value(value)
        e.value(target)
        e.store_attr(name)
        return
    e.pinned(type.__setattr__ if issubclass(target.python_type(), type) else object.__setattr__)
    e.value(target)
    e.const(name)
    e.value(value)
    e.call(3)
    e.pop()


def _replace_items(e: Emitter, target: Value, kind: str, items: tuple[Value, ...]) -> None:
    e.pinned(_REPLACE[kind])
    e.value(target)
    for item in items:
        e.value(item)
    if kind == "dict":
        e.build("dict", len(items) // 2)
    else:
        e.build("list" if kind == "list" else "tuple", len(items))
    e.call(2)
    e.pop()


def remove_attribute(target: Any, name: str) -> None:
    """Make sure the attribute is gone, with no user code run; one that the traced program itself made was never there."""
    base: Any = type if issubclass(type(target), type) else object
    with contextlib.suppress(AttributeError):
        base.__delattr__(target, name)


def replace_list(target: list[Any], items: list[Any]) -> None:
    """`target[:] = items`."""
    list.__setitem__(target, slice(None), items)


def replace_deque(target: collections.deque[Any], items: tuple[Any, ...]) -> None:
    """Give a deque new contents."""
    collections.deque.clear(target)
    collections.deque.extend(target, items)


def replace_set(target: set[Any], items: tuple[Any, ...]) -> None:
    """Give a set new contents, as the program would: members that stay keep their place."""
    kept = set(items)
    for member in [member for member in set.__iter__(target) if member not in kept]:
        set.discard(target, member)
    for member in items:
        set.add(target, member)


def replace_dict(target: dict[Any, Any], items: dict[Any, Any]) -> None:
    """Give a dict new contents, in the order of `items`."""
    if isinstance(target, collections.OrderedDict):
        collections.OrderedDict.clear(target)
        for key, value in items.items():
            collections.OrderedDict.__setitem__(target, key, value)
        return
    dict.clear(target)
    dict.update(target, items)


_REPLACE = {"list": replace_list, "deque": replace_deque, "set": replace_set, "dict": replace_dict}
