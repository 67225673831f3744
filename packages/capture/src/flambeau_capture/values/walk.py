"""What values lead to: their parts, and the parts of those.

In: values. Out: all of them by identity; what they have in them, to be compared later.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Fields that hold real objects, which may be large.
_REAL = frozenset(("object", "origin", "tensor", "fake", "cell", "globals", "guarded_keys"))


def reachable(roots: Iterable[Any]) -> dict[int, Value]:
    """The values among `roots`, in lists, tuples and dicts of them, and in each other's fields."""
    found: dict[int, Value] = {}
    left = list(roots)
    while left:
        part = left.pop()
        if isinstance(part, list | tuple):
            left.extend(part)
        elif isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, Value) and id(part) not in found:
            found[id(part)] = part
            kind: Any = type(part)
            left.extend(getattr(part, name, None) for name in _fields(kind))
    return found


def contents(values: Iterable[Value]) -> tuple[Any, ...]:
    """All that values have in their fields, real objects excepted, in order and without nesting."""
    found: list[Any] = []
    for value in values:
        kind: Any = type(value)
        found.append(value)
        for name in _fields(kind):
            _flatten(getattr(value, name, None), found)
    return tuple(found)


def same_things(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two `contents` are of the same objects."""
    return len(one) == len(other) and all(
        a is b or (type(a) is type(b) is int and a == b) for a, b in zip(one, other, strict=True)
    )


def _flatten(part: Any, found: list[Any]) -> None:
    if not isinstance(part, list | tuple | dict | set | frozenset):
        found.append(part)
        return
    found.append(len(part))
    for item in part:
        _flatten(item, found)
    if isinstance(part, dict):
        for item in part.values():
            _flatten(item, found)


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(name for cls in kind.__mro__ for name in cls.__dict__.get("__slots__", ()) if name not in _REAL)
