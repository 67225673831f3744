"""`hash()` and comparisons of objects whose classes have them in C, where the program says that they may run while tracing (`allow_c_slot`).

In: objects that existed before the frame, as values. Out: what Python answers for these very objects, which is guarded; or None. The tables are in
`replacements.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import replacements
from ..class_names import class_name
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from ..values.objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..values.base import Tracer


def _held(t: Tracer, value: Value, slot: str) -> Any:
    """The object, held to be the very one at later calls; `MISSING` where its class's slot is not to be called."""
    if not isinstance(value, ObjectValue) or value.object is MISSING:
        return MISSING
    function, _ = t.members.class_member(value.cls, slot)
    if not replacements.is_allowed_slot(value.cls, function):
        return MISSING
    t.guards.identity(value.source, value.object)
    return value.object


def hashable(t: Tracer, value: Value) -> Any:
    """The object as a key, or `MISSING`. It needs both: a dict compares keys whose hashes are equal."""
    found = _held(t, value, "__hash__")
    return MISSING if found is MISSING or _held(t, value, "__eq__") is MISSING else found


def hashed(t: Tracer, value: Value) -> Value:
    """`hash(value)`. Breaks the graph where nothing is known of it."""
    found = _held(t, value, "__hash__")
    if found is MISSING:
        raise GraphBreak("unsupported-call", "hash() of an object")
    return _answer(t, hash, found)


def compared(
    t: Tracer, compare: Callable[[Any, Any], Any], methods: Sequence[str | None], left: Value, right: Value
) -> Value | None:
    """What a comparison gives for two such objects, or for one and a constant. `methods`: that of the left operand, and of the right one."""
    objects = [
        value.constant() if value.is_constant() else _held(t, value, name or "")
        for value, name in zip((left, right), methods, strict=False)
    ]
    return None if any(found is MISSING for found in objects) else _answer(t, compare, *objects)


def _answer(t: Tracer, function: Any, *objects: Any) -> ConstantValue:
    try:
        answer = function(*objects)
    except Exception as error:
        raise t.exceptions.raised(error) from None
    if not isinstance(answer, int):
        kinds = ", ".join(class_name(type(obj)) for obj in objects)
        raise GraphBreak("unsupported-operation", f"a comparison of {kinds} gives a {class_name(type(answer))}")
    return ConstantValue(answer)
