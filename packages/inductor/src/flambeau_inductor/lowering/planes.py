"""A value at several places of a plane, of which only what depends on the place is computed more than once.

In: a tensor whose last dimensions are the plane. Out: ``Plane.at``, an element as a scalar, or what else stands where it does not exist. Of a batch norm before a
pool the factors of a channel are the same at all places of a window, and a ReLU of the largest is the largest of the ReLUs. So that they are one scalar, and are computed once, the condition that a place
exists stands around the loads that depend on the place and around the result, not around everything; where it does not hold, arithmetic is done in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .. import expr as ex
from ..expr import ONE, Expr, Int, Symbol, free_symbols
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from ..ops.costs import Target
from .values import Index, TensorValue, canonical_index

#: Stands for the condition, until a place is known.
_EXISTS = sc.parameter("exists", torch.bool)
#: Ops that keep the order of floats, and NaNs, where all operands but one are the same.
_KEEP_ORDER = frozenset({"to_dtype", "relu", "maximum", "minimum"})


class Plane:
    """``a`` over its last ``n`` dimensions. ``largest``: the largest of several elements is looked for, so that what keeps their order (rounding, ReLU)
    is left out of ``at``, and is done once, by ``finished``."""

    def __init__(self, a: TensorValue, n: int, *, largest: bool = False) -> None:
        self.a, self.n = a, n
        # At a size of one there are places beside it, too.
        sizes = [Int(2) if size is ONE else size for size in a.sizes[-n:]]
        self.marks: Index = tuple(Symbol(f"place{d}", bound=size) for d, size in enumerate(sizes))
        body = self._body(canonical_index(a.sizes[:-n]))
        self.is_plain = not any(_is_guarded(node) for node in sc.walk(body))
        self.largest = largest and self.is_plain
        self.varying = self._varying(self._inner(body))

    def _body(self, lead: Index) -> Scalar:
        return self.a.at((*lead, *self.marks))

    def _varying(self, body: Scalar) -> frozenset[Scalar]:
        found: set[Scalar] = set()
        for node in sc.walk(body):
            symbols = {symbol for e in sc.expressions(node) for symbol in free_symbols(e)}
            below = (*node.children, *sc.indirect_scalars(node))
            if not symbols.isdisjoint(self.marks) or not found.isdisjoint(below):
                found.add(node)
        return frozenset(found)

    def _inner(self, body: Scalar) -> Scalar:
        """The part of ``body`` that has to be computed at each place."""
        if not self.largest:
            return body
        varying = self._varying(body)
        while body.op in _KEEP_ORDER and body.children[0].dtype.is_floating_point and body.dtype.is_floating_point:
            inside = [child for child in body.children if child in varying]
            if len(inside) != 1:
                break
            body = inside[0]
        return body

    def work(self, target: Target) -> int:
        """What one more place costs to compute, in simple instructions."""
        return sum(sc.cost(node, target) for node in self.varying if node.op != "to_dtype")

    def arrays(self) -> int:
        """How many arrays are read anew at each place."""
        return len({node.buffer for node in self.varying if node.kind == "load"})

    def at(self, lead: Index, place: Index, exists: Scalar, compute: torch.dtype, other: Scalar) -> Scalar:
        """The element at ``place`` in ``compute``; ``other`` where it does not exist."""
        if not self.is_plain:
            value = self.a.at((*lead, *place))
            return sc.masked(exists, sc.op("to_dtype", value, dtype=compute), other)
        inner = self._inner(self._body(lead))
        moved = dict(zip(self.marks, place, strict=True))
        if inner.kind == "load":
            return sc.masked(exists, sc.op("to_dtype", sc.substitute(inner, moved), dtype=compute), other)
        body = sc.transform(inner, self._guarded)

        def settle(node: Scalar) -> Scalar | None:
            return exists if node is _EXISTS else None

        value = sc.transform(body, settle, lambda e: ex.substitute(e, moved))
        return sc.op("where", exists, sc.op("to_dtype", value, dtype=compute), other)

    def finished(self, lead: Index, value: Scalar) -> Scalar:
        """The element that is the largest, of which ``at`` gave ``value``."""
        body = self._body(lead)
        inner = self._inner(body)
        found = sc.op("to_dtype", value, dtype=inner.dtype)
        return sc.transform(body, lambda node: found if node is inner else None)

    def _guarded(self, node: Scalar) -> Scalar | None:
        if node.kind != "load" or free_symbols(node.index).isdisjoint(self.marks):
            return None
        return sc.masked(_EXISTS, node, sc.constant(0, node.dtype))


def _is_guarded(node: Scalar) -> bool:
    """Whether it is not to be evaluated everywhere."""
    return node.kind == "masked" or node.op == "check_bounds" or bool(sc.indirect_scalars(node))


def flat(sizes: Sequence[Expr], place: Index) -> Expr:
    """The position of ``place`` in a plane of ``sizes``."""
    found: Expr = Int(0)
    for size, i in zip(sizes, place, strict=True):
        found = found * size + i
    return found
