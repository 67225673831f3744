"""Numbers that Python computes: functions that have no place in a graph's arithmetic of sizes.

In: a pure function of numbers (`math.cos`, `round`, `int` of a float) and its arguments as values, one of them symbolic at least.
Out: where all that is symbolic comes from one number of the caller's (a size, an argument), the result is a new input of the graph, whose
source says how it is computed from that number. So it is Python's own result at every call, to the last bit, and nobody has to be told
the rules of floating point. None where the numbers come from several places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..class_names import name_of
from ..graph import shapes
from ..library import weakref
from ..sources.source import Computed, Source, identity_key
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import Formula, SymbolicValue, same_number

if TYPE_CHECKING:
    from ..values.base import Tracer

_NUMBERS = (int, float)
_LONGEST = 2000
"""Letters of a formula: what a loop computes twice from the round before doubles, and so does the time to compute it."""


def source_of(formula: Formula) -> Source:
    """Where a number lies whose formula this is."""
    return formula.base if formula.function is same_number else Computed(formula.base, formula.function, formula.text)


def combined(function: Callable[..., Any], values: Sequence[Value]) -> Formula | None:
    """The formula of `function(*values)`; None where there is none, where it would be too long, or where Python raises."""
    first: Formula | None = None
    parts: list[Formula | Any] = []
    for value in values:
        if isinstance(value, SymbolicValue):
            formula = value.formula
            if formula is None or (first is not None and formula.base is not first.base):
                return None
            first = first or formula
            parts.append(formula)
        elif value.is_constant():
            parts.append(value.constant())
        else:
            return None
    if first is None or sum(len(part.text) for part in parts if isinstance(part, Formula)) > _LONGEST:
        return None
    try:
        result = function(*(part.value if isinstance(part, Formula) else part for part in parts))
    except (ArithmeticError, TypeError, ValueError):
        return None
    text = ", ".join(part.text if isinstance(part, Formula) else repr(part) for part in parts)
    return Formula(first.base, _composed(function, tuple(parts)), result, f"{name_of(function)}({text})")


@frozen(eq=False, weakref_slot=True)
class _Composed:
    """`function` of parts: of what a step computes from one number, where there is one, else of a constant."""

    function: Callable[..., Any]
    steps: tuple[Callable[[Any], Any] | None, ...]
    constants: tuple[Any, ...]

    def __call__(self, base: Any) -> Any:
        given = [part if step is None else step(base) for step, part in zip(self.steps, self.constants)]
        return self.function(*given)


#: What is computed alike is one function and has one source: a guard on it is checked once, however often a program asks (`weight_decay != 0`
#: for each parameter of an optimizer).
_composed_before: weakref.WeakValueDictionary[tuple[Any, ...], _Composed] = weakref.WeakValueDictionary()


def _composed(function: Callable[..., Any], parts: tuple[Formula | Any, ...]) -> _Composed:
    steps = tuple(part.function if isinstance(part, Formula) else None for part in parts)
    constants = tuple(None if isinstance(part, Formula) else part for part in parts)
    made = _Composed(function, steps, constants)
    return _composed_before.setdefault((id(function), tuple(map(id, steps)), identity_key(constants)), made)


def computed(t: Tracer, function: Callable[..., Any], values: Sequence[Value]) -> Value | None:
    """`function(*values)` as an input of its own, or as a constant that a guard watches; None where it has no formula."""
    formula = combined(function, values)
    if formula is None or t.wrapper.rehearsing:
        return None
    value, kind = formula.value, type(formula.value)
    source = source_of(formula)
    if kind is bool or value is None:
        t.guards.constant(source, value)
        return ConstantValue(value)
    limit = shapes.limit_of(value) if kind in _NUMBERS else None
    if limit is None:
        return None
    t.guards.number_is(source, kind, limit)
    found = shapes.number_input(t.graph, value, source)
    if found is None:
        return None
    made = SymbolicValue(*found, source)
    made.formula = formula
    return made
