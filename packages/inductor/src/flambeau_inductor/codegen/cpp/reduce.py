"""Reductions as C++ text: start value, one step, folding lanes and merging accumulators.

In: a ``Reduce`` or ``ScanStep`` statement. Out: expressions for its accumulator.
"""

from __future__ import annotations

import torch
from attrs import evolve, frozen

from ...ir.kernel import Reduce, ScanStep
from ...ir.scalar import Scalar
from .dtypes import held, highest, literal, lowest, vector

_FOLD = {
    "sum": "Add", "prod": "Multiply", "xor_sum": "Xor", "max": "Maximum", "min": "Minimum", "any": "Any", "all": "All",
}  # fmt: skip


#: Sums in double precision of these do not overflow, in whichever order, and differ in digits that are rounded away.
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


def _is_associative(kind: str, value: Scalar) -> bool:
    """Whether it makes no difference in which order values of a scan are combined."""
    if kind in ("max", "min") or not (value.dtype.is_floating_point or value.dtype.is_complex):
        return True
    from_narrow = value.op == "to_dtype" and value.args[1].dtype in _NARROW
    return kind == "sum" and value.dtype is torch.float64 and from_narrow


@frozen
class Accumulator:
    """How one statement accumulates. ``in_any_order``: a scan may combine later values with each other first."""

    name: str
    kind: str
    dtype: torch.dtype
    result: torch.dtype
    in_any_order: bool = False

    @classmethod
    def of(cls, statement: Reduce | ScanStep) -> Accumulator:
        """The accumulator of a statement."""
        in_any_order = _is_associative(statement.kind, statement.value)
        return cls(statement.name, statement.kind, statement.value.dtype, statement.dtype, in_any_order)

    @property
    def is_argument(self) -> bool:
        """True for argmax and argmin."""
        return self.kind in ("argmax", "argmin")

    def start(self) -> str:
        """The identity, as a scalar."""
        if self.kind in ("sum", "xor_sum"):
            return literal(0, self.dtype)
        if self.kind == "prod":
            return literal(1, self.dtype)
        if self.kind in ("any", "all"):
            return "true" if self.kind == "all" else "false"
        if self.kind == "logaddexp":
            return lowest(self.dtype)
        return lowest(self.dtype) if self.kind in ("max", "argmax") else highest(self.dtype)

    def scalar_type(self) -> str:
        """The accumulator of one point."""
        return f"fb::Best<{held(self.dtype)}>" if self.is_argument else held(self.dtype)

    def scalar_start(self) -> str:
        """Its first value."""
        return f"{{{self.start()}, -1}}" if self.is_argument else f"{{{self.start()}}}"

    def lanes_type(self) -> str:
        """The accumulator of W lanes."""
        return f"fb::BestLanes<{held(self.dtype)}, W>" if self.is_argument else vector(self.dtype)

    def lanes_start(self) -> str:
        """Its first value."""
        if self.is_argument:
            bits = 8 * self.dtype.itemsize
            return f"{{{vector(self.dtype)}({self.start()}), fb::Vec<int{bits}_t, W>((int{bits}_t)-1)}}"
        return f"{{{vector(self.dtype)}({self.start()})}}"

    def combine(self, a: str, b: str) -> str:
        """Two accumulators, or an accumulator and a value, of lanes or scalars."""
        if self.kind == "logaddexp":
            return f"fb::logaddexp({a}, {b})"
        return f"fb::{_FOLD[self.kind]}{{}}({a}, {b})"

    def lanes_step(self, old: str, value: str, position: str) -> str:
        """The accumulator after a vector of values, dead lanes left alone."""
        if self.is_argument:
            bits = 8 * self.dtype.itemsize
            most = "true" if self.kind == "argmax" else "false"
            return f"fb::best_lanes<{most}>({old}, {value}, (int{bits}_t)({position}), fb::lane_mask<W>(t))"
        return f"fb::keep<W>(t, {self.combine(old, value)}, {old})"

    def scalar_step(self, old: str, value: str, position: str) -> str:
        """The accumulator after one value."""
        if self.is_argument:
            return f"fb::best<{'true' if self.kind == 'argmax' else 'false'}>({old}, {value}, {position})"
        return self.combine(old, value)

    def run(self, last: str, values: str, count: str, most: int) -> str:
        """A scan's step for ``count`` values in memory, ``most`` at most, after those that came to ``last``."""
        name = f"running_apart<{most}>" if self.in_any_order else "running"
        return f"fb::{name}([](auto a, auto b) {{ return {self.combine('a', 'b')}; }}, {last}, {values}, {count});"

    def fold(self, lanes: str) -> str:
        """Lanes to one result."""
        if self.is_argument:
            return f"fb::larger(fb::fold_best<{'true' if self.kind == 'argmax' else 'false'}>({lanes}).index, 0)"
        return f"fb::fold(fb::{_FOLD[self.kind]}{{}}, {lanes})"


def in_double(a: Accumulator) -> Accumulator:
    """The accumulator of a scan over float32 that is computed in double precision."""
    return evolve(a, dtype=torch.float64, in_any_order=a.in_any_order or a.kind == "sum")
