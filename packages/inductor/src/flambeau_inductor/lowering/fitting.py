"""Operands of a call of bodies, laid out as the bodies were compiled for.

In: lowered values, and a body whose inputs have layouts over symbols of its own. Out: windows and numbers to pass. Sizes that are not
known to agree are checked when the program runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import expr as ex
from ..errors import UnsupportedGraphError
from ..expr import ONE, ZERO, Expr
from ..ir.graph import Input, ScalarInput, TensorInput
from ..ir.layout import Layout, Ref
from ..ir.loops import Assert
from .bodies import Body
from .builder import Builder
from .values import TensorValue


class Fitting:
    """The values of one call. A body takes them in the order operands, slices, same, places; its program gets the slices last."""

    def __init__(
        self,
        g: Builder,
        operands: Sequence[Any],
        slices: Sequence[Any],
        same: Sequence[Any],
        places: Sequence[Ref],
    ) -> None:
        self.g = g
        self.values = [*operands, *slices, *same, *places]
        self.first = len(operands)
        self.then = self.first + len(slices)
        self.last = self.then + len(same)

    def reordered(self, inputs: Sequence[Input], more: Sequence[Input]) -> list[Input]:
        """``inputs`` of a body as its program takes them: with ``more`` before what is sliced."""
        sliced = (*inputs[self.first : self.then], *inputs[self.last :])
        return [*inputs[: self.first], *inputs[self.then : self.last], *more, *sliced]

    def fit(self, body: Body) -> tuple[list[Any], list[Any], list[Any]]:
        """Operands, slices and what stays the same, as they are passed to ``body``."""
        inputs = body.graph.inputs
        if len(inputs) != len(self.values):
            raise UnsupportedGraphError(f"a body of {len(inputs)} inputs that is given {len(self.values)}")
        known = self._symbols(inputs)
        given = [self._one(n, entry, known) for n, entry in enumerate(inputs)]
        return given[: self.first], given[self.first : self.then], given[self.then : self.last]

    def _sliced(self, position: int) -> int:
        """How many leading dimensions of a value the body does not see."""
        return int(self.first <= position < self.then or position >= self.last)

    def _symbols(self, inputs: Sequence[Input]) -> dict[Expr, Expr]:
        """The body's symbols in terms of this graph's."""
        known: dict[Expr, Expr] = {}
        for position, (entry, value) in enumerate(zip(inputs, self.values, strict=True)):
            if isinstance(entry, ScalarInput):
                if entry.value is not None and entry.value.is_symbol and isinstance(value, Expr | int):
                    known[entry.value] = self.g.expr(value)
                continue
            if not isinstance(value, TensorValue | Ref) or len(value.sizes) != len(
                entry.buffer.layout.sizes
            ) + self._sliced(position):
                raise UnsupportedGraphError("a body that is given another kind of value than it takes")
            for size, actual in zip(entry.buffer.layout.sizes, value.sizes[self._sliced(position) :], strict=True):
                if size.is_symbol:
                    known.setdefault(size, actual)
        return known

    def _one(self, position: int, entry: Input, known: dict[Expr, Expr]) -> Any:
        value = self.values[position]
        if isinstance(entry, TensorInput):
            return self._tensor(value, entry.buffer.layout, known, self._sliced(position))
        if isinstance(value, TensorValue):
            raise UnsupportedGraphError("a body that is given a tensor for a number")
        if entry.value is not None and value is not None:
            self._agree(ex.substitute(entry.value, known), self.g.expr(value))
        return 0 if value is None else self.g.argument(value)

    def _tensor(self, value: TensorValue | Ref, layout: Layout, known: dict[Expr, Expr], sliced: int) -> Ref:
        g = self.g
        if value.dtype is not layout.dtype or value.device != layout.device:
            raise UnsupportedGraphError(
                f"a body for {layout.dtype} on {layout.device} that is given {value.dtype} on {value.device}"
            )
        for size, actual in zip(layout.sizes, value.sizes[sliced:], strict=True):
            self._agree(ex.substitute(size, known), actual)
        if isinstance(value, Ref):
            return value
        ref = g.ref(value)
        inner = tuple(ex.substitute(stride, known) for stride in layout.strides)
        outer = ref.strides[:sliced]
        if not Ref.lies_as(ref, (*outer, *inner)):
            reach = ONE
            for size, stride in zip(value.sizes[sliced:], inner, strict=True):
                reach = ex.maximum(reach, size * stride)
            ref = g.copy(value, ((reach,) if sliced else ()) + inner)
        return ref.seen_with((*ref.strides[:sliced], *inner))

    def _agree(self, wanted: Expr, actual: Expr) -> None:
        """What the body takes for granted of a number."""
        if ex.known_eq(wanted, actual):
            return
        holds = ex.eq(wanted, actual)
        names = {symbol.name for symbol in ex.free_symbols(holds)}
        if holds is ZERO or not names <= self.g.known_symbols:
            raise UnsupportedGraphError(f"a body compiled for the size {wanted} that is given {actual}")
        self.g.operations.append(Assert(holds, f"a body was compiled for the size {wanted}", self.g.origins))
