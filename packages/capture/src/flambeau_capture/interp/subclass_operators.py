"""Operators with tensors of subclasses.

In: an operator, the special methods that do it, and its operands, of which one at least is of a subclass. Out: what the methods that the program
wrote for the classes make of it, in Python's order; where there are none the operator on tensors, which asks `__torch_function__`.
"""

from __future__ import annotations

from operator import imatmul, matmul
from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak
from ..values.base import Value
from ..values.objects import ObjectValue
from ..values.subclasses import SubclassValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values.base import Tracer

_TENSORS = (TensorValue, SubclassValue)
_COMPARISONS = ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__")


def operate(
    t: Tracer, function: Callable[[Any, Any], Any], methods: tuple[str, str, str | None], left: Value, right: Value
) -> Value:
    """`left function right`; the methods are those of the left operand, of the right one, and the one in place."""
    forward, reflected, in_place = methods
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        raise GraphBreak("unsupported-operation", f"{function.__name__} of {left.describe()} and {right.describe()}")
    pair = [(left, forward, right), (right, reflected, left)]
    tries = pair if in_place is None else [(left, in_place, right), *pair]
    if not any(isinstance(owner, SubclassValue) and owner.special(t, name) is not None for owner, name, _ in tries):
        return t.recorder.record("call_function", matmul if function is imatmul else function, [left, right], {})
    for owner, name, other in tries[: len(tries) - 2] + _ordered(t, pair):
        if not isinstance(owner, _TENSORS):
            continue
        own = owner.special(t, name) if isinstance(owner, SubclassValue) else None
        if own is not None:
            result = t.caller.call(own, [other], {})
        elif t.members.class_lookup(owner.python_type(), name) is not None and hasattr(owner.python_type(), name):
            result = owner.call_method(t, name, [other], {})
        else:
            continue
        if not (result.is_constant() and result.constant() is NotImplemented):
            return result
    raise GraphBreak("operator-error", f"{function.__name__} of {left.describe()} and {right.describe()}")


def _ordered(t: Tracer, pair: list[tuple[Value, str, Value]]) -> list[tuple[Value, str, Value]]:
    """Whom Python asks, in order: a subclass first where it has a method of its own (about comparisons always), one class once."""
    (left, forward, right), (_, reflected, _) = pair
    kind, other = left.python_type(), right.python_type()
    compares = forward in _COMPARISONS
    if kind is other:
        return pair if compares else pair[:1]
    if issubclass(other, kind):
        own, inherited = (t.members.class_lookup(cls, reflected) for cls in (other, kind))
        if compares or own is not inherited:
            return pair[::-1]
    return pair
