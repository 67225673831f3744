"""Arithmetic of symbolic numbers: what becomes a node of the graph, what a guard decides, and what is left to Python.

In: an operator or a function of numbers, and operands as values, one of them symbolic. Out: a value. Python raises for some operands, and computes with
integers of any size and with infinities; a graph's arithmetic does not: what it cannot hold, Python computes, or a guard keeps it out.
"""

from __future__ import annotations

from operator import lshift as shift_left
from operator import pow as power
from typing import TYPE_CHECKING, Any

import torch

from ..graph.open_numbers import bounds_for, is_open
from ..graph.shapes import is_large, is_large_sum, is_long, least, limit_of
from ..library import math, operator
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.symbolic import Formula, SymbolicValue
from . import formulas
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SQUARE_ROOT = getattr(torch, "_sym_sqrt", None)
_SYMBOLS = (torch.SymInt, torch.SymFloat)
_HELD = (int, float, *_SYMBOLS, torch.SymBool)
"""Of what numbers a graph's arithmetic is: with complex numbers, as with what is no number, Python computes."""
_IN_PYTHON: dict[Any, Callable[..., Any]] = {
    torch.sym_int: int, torch.sym_float: float, torch.sym_max: max, torch.sym_min: min, torch.sym_not: operator.not_,
    _SQUARE_ROOT: math.sqrt,
}  # fmt: skip
"""What Python calls for one of torch's functions of symbols."""
_DECIDED_BY_PYTHON = frozenset((
    operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge, torch.sym_int, math.ceil, math.floor, math.trunc,
))  # fmt: skip
"""Of floats these depend on the last bit."""
_GROWING = (operator.mul, operator.pow, operator.lshift)
"""What may leave 64 bits at once."""
_OF_TRUTHS = (torch.sym_not, operator.and_, operator.or_)
_SUMS = (operator.add, operator.sub, operator.mul, operator.pow)
_SHIFTS = (shift_left, operator.rshift)
_LARGEST_SHIFT = 62
_SAFE_EXPONENT = 16
"""A float holds the power of an integer of 63 bits with such an exponent: 2 ** (63 * 16) < 2 ** 1024."""
_CANCELLING = (operator.add, operator.sub, operator.mul, operator.truediv)
_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)


def _is_arithmetic(number: torch.SymFloat) -> bool:
    """Whether a float depends on its symbols, and is a number that their arithmetic holds: it knows neither infinities nor nan, `b - b` is 0 there."""
    return bool(number.node.expr.free_symbols) and not (number.node.has_hint() and limit_of(number.node.hint) is None)


class Arithmetic(Part):
    """Arithmetic of symbolic numbers."""

    def symbolic(self, function: Callable[..., Any], values: Sequence[Value]) -> Value:
        given = [self.t.recorder.decided(value) for value in values]
        in_python = _IN_PYTHON.get(function, function)
        if not any(isinstance(value, SymbolicValue) for value in given):
            return self.t.folder.fold(in_python, given, {})
        values = [self._number(value) for value in given]
        pairs = [self.t.recorder.argument(value) for value in values]
        fakes = [fake for _, fake in pairs]
        floats = any(isinstance(fake, (torch.SymFloat, float)) for fake in fakes)
        if floats and function in _DECIDED_BY_PYTHON:
            known = formulas.computed(self.t, in_python, values)
            if known is not None:
                return known
        if self._is_partial(function, fakes) or self._takes_open_truth(function, fakes):
            return self.computed(in_python, given, {})
        if is_long(*fakes) and all(fake.node.has_hint() for fake in fakes if isinstance(fake, _SYMBOLS)):
            return self.t.folder.fold(
                in_python, [self.t.wrapper.from_python(self.t.folder.concrete(value)) for value in given], {}
            )
        self._assume_defined(function, values)
        try:
            with self.t.graph.unpatched:
                result = function(*fakes)
        except (ArithmeticError, TypeError, ValueError, RuntimeError, AttributeError):
            # Python words its errors for numbers; some values (a power of a negative number, a result beyond what a float holds)
            # torch does not model; shifts by a tensor's number fail in torch 2.11 (an AttributeError).
            return self.computed(in_python, given, {})
        finally:
            self.t.graph.note_guards()
        if isinstance(result, torch.SymInt) and (
            self._is_large(function, pairs, result) or (function in _SUMS and self._may_overflow(result))
        ):
            return self.t.folder.fold(
                in_python, [self.t.wrapper.from_python(self.t.folder.concrete(value)) for value in given], {}
            )
        if isinstance(result, torch.SymInt) and any(isinstance(fake, torch.SymFloat) for fake in fakes):
            # Rounding a float: the stages below hold integers in integer arithmetic only.
            return self.t.wrapper.from_python(self.t.graph.specialise(result))
        if isinstance(result, torch.SymFloat) and not _is_arithmetic(result):
            return self.computed(in_python, given, {})
        if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            made = self.t.recorder.number(
                result, lambda: self.t.graph.derive(function, tuple(node for node, _ in pairs), result)
            )
            if isinstance(made, SymbolicValue):
                made.formula = formulas.combined(in_python, values)
                if made.python_type() is float or (floats and made.is_open()):
                    made.came_from(in_python, values)
            return made
        return self.t.wrapper.from_python(result)

    def _assume_defined(self, function: Callable[..., Any], values: Sequence[Value]) -> None:
        """Assume of numbers that come out of tensors that Python does not raise, and that what is computed twice of one float is a number."""
        last = values[-1]
        if function in _DIVISIONS and isinstance(last, SymbolicValue) and last.is_open():
            differs = self.symbolic(operator.ne, [last, ConstantValue(0)])
            if isinstance(differs, SymbolicValue):
                self.t.graph.check(differs.node, differs.symbol)
        symbols = [value.symbol for value in values if isinstance(value, SymbolicValue)]
        if len(symbols) == 2 and function in _CANCELLING:
            shared = symbols[0].node.expr.free_symbols & symbols[1].node.expr.free_symbols
            if any(symbol.is_integer is not True and not symbols[0].node.has_hint() for symbol in shared):
                raise GraphBreak("data-dependent-value", "a float that comes from a tensor is computed with twice")

    def _may_overflow(self, result: torch.SymInt) -> bool:
        """Whether an integer computed of numbers that come out of tensors may leave 64 bits though it is assumed of these that they are no larger
        than it takes."""
        found = bounds_for(self.t.graph, result)
        if found is None:
            return True
        for number, limit in found:
            for function, bound in ((operator.le, limit), (operator.ge, -limit)):
                holds = function(number[1], bound)
                node = self.t.graph.derive(function, (number[0], bound), holds)
                self.t.graph.check(node, holds)
        return False

    def _takes_open_truth(self, function: Callable[..., Any], operands: Sequence[Any]) -> bool:
        """Whether a truth value that no example decides would count as a number, which it is to Python alone."""
        return function not in _OF_TRUTHS and any(isinstance(part, torch.SymBool) for part in operands)

    def _is_partial(self, function: Callable[..., Any], operands: Sequence[Any]) -> bool:
        """Whether Python raises for some operands, or torch has no arithmetic for them. Where a guard keeps these out there is one, and no other answer."""
        if not all(isinstance(part, _HELD) for part in operands):
            return True
        if any(isinstance(part, (int, float)) and limit_of(part) is None for part in operands):
            return True
        last = operands[-1]
        if function in _DIVISIONS and isinstance(last, _SYMBOLS) and last.node.has_hint():
            return self.t.graph.decide(last == 0)
        if function in (power, *_SHIFTS) and is_open(last):
            return True
        if function is power:
            return self._is_partial_power(*operands)
        if function is _SQUARE_ROOT:
            return least(self.t.graph, last) < 0 and not (last.node.has_hint() and self.t.graph.decide(last >= 0))
        if function in _SHIFTS and isinstance(last, int):
            return not 0 <= last <= _LARGEST_SHIFT
        if function in _SHIFTS and isinstance(last, _SYMBOLS):
            return last.node.has_hint()  # torch 2.11 fails at these, and logs that
        return False

    def _is_partial_power(self, base: Any, exponent: Any) -> bool:
        """A float's power overflows, and that of what is not positive may be complex, or a division by zero."""
        if is_open(base):
            return (
                not isinstance(base, torch.SymInt)
                or not isinstance(exponent, int)
                or not 0 <= exponent <= _SAFE_EXPONENT
            )
        floats = any(isinstance(part, (float, torch.SymFloat)) for part in (base, exponent))
        if not floats and self.t.graph.decide(exponent >= 0):
            return False
        ordinary = not isinstance(exponent, _SYMBOLS) and abs(exponent) <= _SAFE_EXPONENT
        return not (ordinary and isinstance(base, torch.SymInt) and least(self.t.graph, base) > 0)

    def _is_large(self, function: Callable[..., Any], pairs: Sequence[tuple[Any, Any]], result: torch.SymInt) -> bool:
        if function not in _GROWING:
            return is_large_sum(self.t.graph, result)
        (_, left), (_, right) = pairs
        if function is shift_left:
            return is_large(self.t.graph, result, 2, right if isinstance(right, torch.SymInt) else None)
        return is_large(self.t.graph, result, left, right if function is power else None)

    def _number(self, value: Value) -> Value:
        """An operand as a number: the arithmetic of sizes has no truth values."""
        if value.is_constant() and isinstance(value.constant(), bool):
            return ConstantValue(int(value.constant()))
        return value

    def computed(self, function: Callable[..., Any], values: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """A pure function of numbers, some symbolic, that the arithmetic of sizes has not: Python computes it, or the numbers are fixed."""
        if not kwargs and (made := formulas.computed(self.t, function, values)) is not None:
            return made
        known = {name: self.t.wrapper.from_python(self.t.folder.concrete(value)) for name, value in kwargs.items()}
        return self.t.folder.fold(
            function, [self.t.wrapper.from_python(self.t.folder.concrete(value)) for value in values], known
        )

    def watch(self, formula: Formula) -> None:
        """A guard that a number is what it is now."""
        self.t.guards.constant(formulas.source_of(formula), formula.value)
