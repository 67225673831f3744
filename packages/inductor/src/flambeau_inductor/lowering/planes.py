"""A value at several places of a plane, of which only what depends on the place is computed more than once.

In: a tensor whose last dimensions are the plane. Out: ``Plane.at``, an element as a scalar, or what else stands where it does not exist; ``Plane.combined``, several
elements as one.

- Of a batch norm before a pool the factors of a channel are the same at all places of a window. So that they are one scalar, and are computed
  once, the condition that a place exists stands around the loads that depend on the place and around the result, not around everything; where it does not
  hold, arithmetic is done in vain.
- A condition that is the same at all places (which of several joined tensors a channel is from) chooses between combined elements.
- A ReLU of the largest is the largest of the ReLUs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, Int, Symbol, free_symbols
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.costs import Target
from .values import Index, TensorValue, canonical_index

#: Stands for the condition, until a place is known.
_EXISTS = sc.parameter("exists", torch.bool)
#: Ops that keep the order of floats, and NaNs, where all operands but one are the same.
_KEEP_ORDER = frozenset({"to_dtype", "relu", "maximum", "minimum"})

#: A place, and whether it exists.
Place = tuple[Index, Scalar]


class Plane:
    """``a`` over its last ``n`` dimensions. ``largest``: ``combined`` looks for the largest of elements of which at least one exists."""

    def __init__(self, a: TensorValue, n: int, *, largest: bool = False) -> None:
        self.a, self.largest = a, largest
        # At a size of one there are places beside it, too.
        sizes = [Int(2) if size is ONE else size for size in a.sizes[-n:]]
        self.marks: Index = tuple(Symbol(f"place{d}", bound=size) for d, size in enumerate(sizes))
        body = self._body(canonical_index(a.sizes[:-n]))
        again: set[Scalar] = set()

        def note(part: Scalar) -> Scalar:
            again.update(self._varying(part))
            return part

        self._split(body, note)
        self._again = again

    def _body(self, lead: Index) -> Scalar:
        return self.a.at((*lead, *self.marks))

    def _varying(self, body: Scalar) -> set[Scalar]:
        """What depends on the place."""
        found: set[Scalar] = set()
        for node in sc.walk(body):
            symbols = {symbol for e in sc.expressions(node) for symbol in free_symbols(e)}
            below = (*node.children, *sc.indirect_scalars(node))
            if not symbols.isdisjoint(self.marks) or not found.isdisjoint(below):
                found.add(node)
        return found

    def _split(self, body: Scalar, combine: Callable[[Scalar], Scalar]) -> Scalar:
        """``body`` over several places, of which ``combine`` does the parts that have to be computed at each."""
        varying = self._varying(body)

        def split(node: Scalar) -> Scalar:
            if node not in varying:
                return node if self.largest else combine(node)
            if (node.kind == "masked" or node.op == "where") and node.children[0] not in varying:
                condition, a, b = node.children
                parts = (condition, split(a), split(b))
                return sc.masked(*parts) if node.kind == "masked" else sc.op("where", *parts)
            inside = [child for child in node.children if child in varying]
            floats = all(part.dtype.is_floating_point for part in (node, *node.children))
            if self.largest and node.op in _KEEP_ORDER and len(inside) == 1 and floats:
                return sc.rebuild(node, tuple(split(part) if part is inside[0] else part for part in node.args))
            return combine(node)

        return split(body)

    def work(self, target: Target) -> int:
        """What one more place costs to compute, in simple instructions."""
        return sum(sc.cost(node, target) for node in self._again if node.op != "to_dtype")

    def arrays(self) -> int:
        """How many arrays are read anew at each place."""
        return len({node.buffer for node in self._again if node.kind == "load"})

    def at(self, lead: Index, place: Place, compute: torch.dtype, other: Scalar) -> Scalar:
        """The element at ``place`` in ``compute``; ``other`` where it does not exist."""
        return self._part_at(self._body(lead), place, compute, other)

    def combined(
        self,
        lead: Index,
        places: Sequence[Place],
        compute: torch.dtype,
        other: Scalar,
        combine: Callable[[Sequence[Scalar]], Scalar],
    ) -> Scalar:
        """What ``combine`` makes of the elements at ``places``, or in their own type the largest of them."""

        def part(body: Scalar) -> Scalar:
            found = combine([self._part_at(body, place, compute, other) for place in places])
            return sc.op("to_dtype", found, dtype=body.dtype) if self.largest else found

        return self._split(self._body(lead), part)

    def _part_at(self, body: Scalar, place: Place, compute: torch.dtype, other: Scalar) -> Scalar:
        position, exists = place
        moved = dict(zip(self.marks, position, strict=True))
        if body.kind == "load" or any(map(_is_guarded, sc.walk(body))):
            return sc.masked(exists, sc.op("to_dtype", sc.substitute(body, moved), dtype=compute), other)

        def settle(node: Scalar) -> Scalar | None:
            return exists if node is _EXISTS else None

        value = sc.transform(sc.transform(body, self._guarded), settle, lambda e: ex.substitute(e, moved))
        return sc.op("where", exists, sc.op("to_dtype", value, dtype=compute), other)

    def _guarded(self, node: Scalar) -> Scalar | None:
        if node.kind != "load" or free_symbols(node.index).isdisjoint(self.marks):
            return None
        return sc.masked(_EXISTS, node, sc.constant(0, node.dtype))


def _is_guarded(node: Scalar) -> bool:
    """Whether it is not to be evaluated everywhere."""
    return node.kind == "masked" or node.op == "check_bounds" or bool(sc.indirect_scalars(node))


def flat(sizes: Sequence[Expr], place: Index) -> Expr:
    """The position of ``place`` in a plane of ``sizes``."""
    found: Expr = ZERO
    for size, i in zip(sizes, place, strict=True):
        found = found * size + i
    return found
