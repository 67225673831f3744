"""What values lead to: their parts, and the parts of those.

In: values. Out: all of them by identity.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .base import Value

if TYPE_CHECKING:
    from collections.abc import Iterable

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


@cache
def _fields(kind: type) -> tuple[str, ...]:
    return tuple(name for cls in kind.__mro__ for name in cls.__dict__.get("__slots__", ()) if name not in _REAL)
