"""The loops of a kernel in the kernel IR: over points, over inner axes, over lanes.

In: the loop plan. Out: statements in the emitter's innermost scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Statement
from ...ir.loops import Axis
from ...ir.scalar import Scalar
from ...kernel_ir import Node, Variable
from .reduce import Accumulator
from .statements import HIGH, LOW, StatementWriter

ONE = kir.Number(1)


class LoopWriter(StatementWriter):
    """Opens and closes loops around statements."""

    def _index(self, e: Expr) -> kir.Index:
        return self.emitter.index(e)

    def _pieces(self, size: Expr, length: int | None) -> Node:
        return self._index(ex.floor_div(size + ((length or 1) - 1), ex.Int(length or 1)))

    @contextmanager
    def _points(self, extra: Sequence[tuple[Variable, Node]] = ()) -> Iterator[None]:
        """Inside the loop over the slice of the parallel extent."""
        em = self.emitter
        axes = [(self.know(axis, 1), self._index(axis.size)) for axis in self.plan.outer]
        em.push(1)
        yield
        body = em.pop()
        em.add(kir.Points((*axes, *extra), body))

    @contextmanager
    def _inner(self, first: tuple[Node, Node] | None = None) -> Iterator[None]:
        """Inside the loops over the inner axes, the outermost of which goes from ``first[0]`` below ``first[1]``."""
        em, bounds = self.emitter, []
        for n, axis in enumerate(self.plan.inner):
            whole = (kir.Number(0), self._index(axis.size))
            bounds.append((self.know(axis, 2 + n), first if first is not None and n == 0 else whole))
            em.push(2 + n)
        yield
        for variable, (low, high) in reversed(bounds):
            em.add(kir.loop(variable, high, ONE, em.pop(), low))

    @contextmanager
    def _blocks(self, size: Node, length: int) -> Iterator[None]:
        """Inside a loop over blocks of a row, in the scope at hand."""
        em = self.emitter
        em.push(em.scope.depth)
        em.add(kir.Assign((HIGH,), _end(LOW, length, size)))
        yield
        em.add(kir.loop(LOW, size, kir.Number(length), em.pop()))

    def _cut(self, piece: Variable, length: int, size: Node) -> None:
        """Where the piece at hand begins and ends."""
        self.emitter.add(kir.Assign((LOW,), kir.arith("mul", piece, kir.Number(length))))
        self.emitter.add(kir.Assign((HIGH,), _end(LOW, length, size)))

    def _lanes(
        self,
        depth: int,
        bounds: tuple[Node, Node],
        statements: Sequence[Statement],
        label: str = "body",
        accumulators: Sequence[Accumulator] = (),
        parts: int = 0,
        extra: Sequence[Scalar] = (),
    ) -> None:
        """A loop that does ``statements``, and computes ``extra``, in lanes; what is the same in all its blocks is computed outside."""
        em = self.emitter
        position = self._open_lanes(depth)
        assert em.lanes is not None
        for node in extra:
            em.emit(node)
        self._statements(statements)
        body = em.pop()
        carried = tuple(v for a in accumulators for v in a.variables(self.words[a.name], self.tiles))
        em.add(kir.ForLanes(label, position, em.lanes, *bounds, body, carried, parts))

    def _open_lanes(self, depth: int) -> Variable:
        em, vector = self.emitter, self.plan.vector
        assert vector is not None
        em.vector_axis, em.lanes = vector.symbol, Variable("t", self.tiles, torch.bool)
        position = self.know(vector, depth)
        for name in em.lane_reduced:
            em.depth_of[name] = depth
        em.push(depth)
        return position

    def _whole(self, axis: Axis) -> tuple[Node, Node]:
        return kir.Number(0), self._index(axis.size)


def _end(start: Node, length: int, size: Node) -> Node:
    """Where a block of ``length`` ends, or its row if that is before."""
    return kir.arith("min", kir.total(start, kir.Number(length)), size)
