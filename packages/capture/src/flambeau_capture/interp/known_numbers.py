"""Comparisons of tensors whose number is known, as loops over numbers have them.

In: an operator and its operands, a tensor among them. Out: its result in the graph, with its truth where that is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..values.base import Value
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values.base import Tracer


def compared(t: Tracer, operator: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    """`operator(left, right)`."""
    made = t.recorder.record("call_function", operator, [left, right], {})
    numbers = [_number(value) for value in (left, right)]
    if isinstance(made, TensorValue) and None not in numbers:
        made.number = bool(operator(*numbers))
    return made


def _number(value: Value) -> int | None:
    number = value.number if isinstance(value, TensorValue) else value.constant() if value.is_constant() else None
    return number if type(number) is int else None
