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


def _is_allowed(t: Tracer, value: Value, *slots: str | None) -> bool:
    """Whether these slots of the object's class may be called."""
    return (
        isinstance(value, ObjectValue)
        and value.object is not MISSING
        and all(
            replacements.is_allowed_slot(value.cls, t.members.class_member(value.cls, slot or "")[0]) for slot in slots
        )
    )


def _held(t: Tracer, value: Value) -> Any:
    """The object of such a class, held to be the very one at later calls, or a constant."""
    if value.is_constant():
        return value.constant()
    t.guards.identity(value.source, value.real())
    return value.real()


def hashable(t: Tracer, value: Value) -> Any:
    """The object as a key, or `MISSING`. It needs both: a dict compares keys whose hashes are equal."""
    return _held(t, value) if _is_allowed(t, value, "__hash__", "__eq__") else MISSING


def hashed(t: Tracer, value: Value) -> Value:
    """`hash(value)`. Breaks the graph where nothing is known of it."""
    if not _is_allowed(t, value, "__hash__"):
        raise GraphBreak("unsupported-call", "hash() of an object")
    return _answer(t, hash, _held(t, value))


def compared(
    t: Tracer, compare: Callable[[Any, Any], Any], methods: Sequence[str | None], left: Value, right: Value
) -> Value | None:
    """What a comparison gives for two such objects, or for one and a constant. `methods`: that of the left operand, and of the right one."""
    operands = zip((left, right), methods, strict=False)
    if not all(value.is_constant() or _is_allowed(t, value, name) for value, name in operands):
        return None
    return _answer(t, compare, _held(t, left), _held(t, right))


def _answer(t: Tracer, function: Any, *objects: Any) -> ConstantValue:
    try:
        answer = function(*objects)
    except Exception as error:
        raise t.exceptions.raised(error) from None
    if not isinstance(answer, int):
        kinds = ", ".join(class_name(type(obj)) for obj in objects)
        raise GraphBreak("unsupported-operation", f"a comparison of {kinds} gives a {class_name(type(answer))}")
    return ConstantValue(answer)
