"""What decides a comparison of two values.

In: a value. Out: the family of classes within which it is compared by elements; whether its class compares in C.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..values.functions import CellValue
from ..values.objects import ObjectValue, OpaqueValue
from ..values.references import ReferenceValue

if TYPE_CHECKING:
    from ..values.base import Value


def family(value: Value) -> type:
    """Sequences compare by their elements with those of their own class or its subclasses."""
    return next(base for base in (tuple, list, object) if issubclass(value.python_type(), base))


def compares_natively(value: Value) -> bool:
    """Whether `==` is the class's own, written in C, so that it is more than identity."""
    kind: Any = value.python_type()
    return isinstance(value, (ObjectValue, OpaqueValue, CellValue, ReferenceValue)) and kind.__eq__ is not object.__eq__
