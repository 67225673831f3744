"""Reductions in the kernel IR: start value, one step, what lanes come to together.

In: a ``Reduce`` or ``ScanStep`` statement. Out: its accumulator, and expressions of it.
"""

from __future__ import annotations

import torch
from attrs import evolve, frozen

from ... import kernel_ir as kir
from ...ir.kernel import Reduce, ScanStep
from ...ir.scalar import Scalar
from ...kernel_ir import Node, Tiles, Variable
from ...kernel_ir.rules import PLACED
from ...ops.dtypes import element_type

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
        return self.kind in PLACED

    def start(self) -> Node:
        """The identity."""
        record = element_type(self.dtype)
        if self.kind in ("prod", "all"):
            value: bool | int | float = 1
        elif self.kind in ("sum", "xor_sum", "any"):
            value = 0
        elif self.kind in ("max", "argmax", "logaddexp"):
            value = record.lowest
        else:
            value = record.highest
        return kir.constant(value, self.dtype)

    def variables(self, name: str, tiles: Tiles) -> tuple[Variable, ...]:
        """What holds it: the value, and its place where that is asked for."""
        value = Variable(name, tiles, self.dtype)
        return (value, Variable(f"{name}_at", tiles, torch.int64)) if self.is_argument else (value,)

    def begin(self, name: str, tiles: Tiles) -> kir.Accumulator:
        """It as the loop finds it."""
        return kir.Accumulator(self.kind, self.variables(name, tiles), self.start())

    def step(self, old: tuple[Node, ...], value: Node, position: Node, mask: Node | None = None) -> kir.Combine:
        """The accumulator after a value, or after one in every lane of ``mask``."""
        new = (value, position) if self.is_argument else (value,)
        return self.combine(old, new, mask)

    def combine(self, old: tuple[Node, ...], new: tuple[Node, ...], mask: Node | None = None) -> kir.Combine:
        """An accumulator with another, or with a value."""
        return kir.Combine(self.kind, old, new, kir.NO_TILES.union(*(part.tiles for part in (*old, *new))), mask)


def in_double(a: Accumulator) -> Accumulator:
    """The accumulator of a scan over float32 that is computed in double precision."""
    return evolve(a, dtype=torch.float64, in_any_order=a.in_any_order or a.kind == "sum")
