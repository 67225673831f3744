"""Keys and members that are compared by identity: which object each of them is, a dict or a set that is asked for it depends on.

In: a key as a value, and the keys that are there. Out: guards, so that an entry serves no call in which it is another object that is there, or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..constant_objects import is_constant_object
from ..signals import GraphBreak
from .base import MISSING, Value
from .lazy import LazyValue
from .sequences import TupleValue
from .symbolic import SymbolicValue
from .tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .base import Tracer


def assume_object(t: Tracer, key: Value, present: bool, keys: Iterable[Value]) -> bool:
    """Assume that a key is the object that was found, or none of `keys`. Whether there was anything to assume."""
    key = key.realise(t)
    objects = [(part, part.source) for part in _objects(t, key) if not t.guards.is_trusted(part.source)]
    for part, source in objects:
        if present or part is not key:
            if not any(_realised(other) is part for other in keys):
                if part.real() is MISSING:
                    raise GraphBreak("unsupported-operation", f"hashing what holds {part.describe()}")
                t.guards.identity(source, part.real())
            continue
        others = [other.source for other in keys if other.source is not None and _may_be(part, other)]
        if others and source is not None:
            t.guards.distinct(source, *others)
    return bool(objects)


def assume_members(t: Tracer, members: Mapping[Any, Value], others: Mapping[Any, Value]) -> None:
    """Assume of all members of a set, by what they hash to, that they are among those of another, or not, as they are now."""
    for hashed, member in members.items():
        if is_compared_by_identity(member, hashed):
            assume_object(t, member, hashed in others, others.values())


def is_compared_by_identity(key: Value, hashed: Any) -> bool:
    """Whether objects may be in a key, so that what it hashes to does not tell which they are at another call."""
    return not is_constant_object(hashed) or isinstance(key, TensorValue | TupleValue)


def real_key(t: Tracer, key: Value) -> Any:
    """The object that a key is for real, `MISSING` for one made while tracing."""
    key = key.realise(t)
    if isinstance(key, TupleValue):
        parts = [real_key(t, part) for part in key.items]
        return MISSING if any(part is MISSING for part in parts) else tuple(parts)
    return key.constant() if key.is_constant() else key.real()


def as_hashed(key: Any) -> Any:
    """What a real key is looked up by: of a tensor, also in a tuple, its identity."""
    if isinstance(key, torch.Tensor):
        return ("tensor", id(key))
    return tuple(map(as_hashed, key)) if isinstance(key, tuple) else key


def _objects(t: Tracer, key: Value) -> Iterator[Value]:
    """The parts of a key that existed before the frame and are no constants; of numbers that change the hash is their value."""
    parts = key.hashed_parts()
    if parts is not None:
        for part in parts:
            yield from _objects(t, part.realise(t))
    elif not key.is_constant() and not isinstance(key, SymbolicValue):
        if key.source is not None or key.real() is not MISSING:
            yield key


def _realised(value: Value) -> Value | None:
    return value.realised if isinstance(value, LazyValue) else value


def _may_be(key: Value, other: Value) -> bool:
    """Whether another object with the type that `key` is guarded to have may be this one. Tensors that were looked at are guarded to differ."""
    if isinstance(key, TensorValue) and _realised(other) is not None:
        return False
    return other.python_type() is key.python_type()
