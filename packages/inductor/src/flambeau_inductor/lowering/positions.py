"""Checks of computed positions: one out of range is an error, whatever becomes of the element that is read there.

In: the positions that rules look at (``Positions``). Out: reductions over positions alone, of which nobody reads the result: of those that
no loop evaluates everywhere; or of all, before anything else, in a graph that writes to its inputs on the CPU. Then nothing is written when
one is out of range, and writes into an input itself stay possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import evolve

from .. import expr as ex
from ..expr import ONE, ZERO, Expr, Symbol
from ..ir import scalar as sc
from ..ir.layout import Sizes
from ..ir.loops import Axis, Loop, Operation, Reduction, make_axes, written
from ..ir.scalar import Scalar
from ..ir.verify import reads_of, scalars_of
from .builder import Builder
from .values import Positions, canonical_index


class Checks:
    """Those of one graph. ``first``: they are made before anything else where that is possible."""

    def __init__(self, g: Builder, first: bool) -> None:
        self.g = g
        self.first = first
        self._noted: dict[tuple[Scalar, Sizes], Positions] = {}
        self._hoisted = 0

    def settle(self, mark: int, given: frozenset[str]) -> None:
        """What the rule noted whose operations begin at ``mark`` counts; ``given`` are the names of symbols that come from outside."""
        for positions in self.g.positions:
            found = positions.at(canonical_index(positions.sizes))
            if found is None or ZERO in positions.sizes or (found, positions.sizes) in self._noted:
                continue
            self._noted[found, positions.sizes] = positions
            if self.first:
                mark += self._place(self._operation(positions), mark, given)
        self.g.positions.clear()

    def keep(self, operations: Sequence[Operation]) -> bool:
        """Append the checks that ``operations``, all that will run, do not make; whether there are any."""
        if self.first or not self._noted:
            return False
        made = {form for operation in operations if isinstance(operation, Loop) for form in _forms(operation)}
        lost = [
            positions
            for (found, sizes), positions in self._noted.items()
            # As it was inlined when it was read first, and as it is read since it was stored.
            if made.isdisjoint(
                _form(at, make_axes(sizes)) for at in (found, positions.at(canonical_index(sizes))) if at
            )
        ]
        for positions in lost:
            self.g.operations.append(self._operation(positions))
        return bool(lost)

    def _operation(self, positions: Positions) -> Reduction:
        """The greatest position, checked on the way."""
        g, sizes = self.g, positions.sizes
        zero = sc.constant(0, torch.int64)
        checked = g.lazy(sizes, torch.int64, positions.index.device, lambda point: positions.at(point) or zero)
        g.reduce(checked, range(len(sizes)), "max", dtype=torch.int64)
        operation = g.operations.pop()
        assert isinstance(operation, Reduction)
        return evolve(operation, checks=True, origins=positions.origins)

    def _place(self, operation: Reduction, mark: int, given: frozenset[str]) -> int:
        """Insert the check: at the very beginning, else before what its rule made, else now. How far that moves the rule's operations."""
        operations, reads = self.g.operations, reads_of(operation)
        makers = [place for place, other in enumerate(operations) if any(out.name in reads for out in written(other))]
        if not makers and _symbols(operation) <= given:
            place, self._hoisted = self._hoisted, self._hoisted + 1
        else:
            place = len(operations) if makers and makers[-1] >= mark else mark
        operations.insert(place, operation)
        return int(place <= mark)


def _symbols(operation: Reduction) -> set[str]:
    """The names of sizes and parameters that a check needs."""
    nodes = list(sc.walk(operation.value))
    expressions = [e for node in nodes for e in sc.expressions(node)] + [axis.size for axis in operation.reduce_axes]
    axes = {axis.symbol for axis in operation.reduce_axes}
    symbols = {s for e in expressions for s in ex.free_symbols(e) if s.definition is None} - axes
    return {s.name for s in symbols} | {node.args[0] for node in nodes if node.kind == "parameter"}


def _forms(operation: Loop) -> Iterator[Any]:
    """What an operation checks wherever it goes."""
    axes = operation.axes + (operation.reduce_axes if isinstance(operation, Reduction) else ())
    seen: set[Scalar] = set()
    stack = list(scalars_of(operation))
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "check_bounds":
            yield _form(node, axes)
        # What stands under a condition is evaluated in some places only.
        children = (node.args[0], node.args[2]) if node.kind == "masked" else node.children
        stack.extend((*children, *sc.indirect_scalars(node)))


def _form(check: Scalar, axes: Sequence[Axis]) -> Any:
    """Equal for checks of the same positions, in whatever order, and however their axes were merged or split as far as strides tell; an
    object of its own where nothing is known."""
    leaves = [e for node in sc.walk(check) for e in sc.expressions(node)]
    symbols = {symbol for e in leaves for symbol in ex.free_symbols(e)}
    if any(symbol.definition is not None for symbol in symbols) or any(axis.size.lo < 1 for axis in axes):
        return object()
    kind = sc.transform(check, lambda node: None, lambda e: ZERO)
    used = [axis for axis in axes if axis.symbol in symbols and axis.size is not ONE]
    strides = [tuple(ex.coefficient(e, axis.symbol) for e in leaves) for axis in used]
    if any(None in row for row in strides):
        named = {axis.symbol: Symbol(f"p{n}", bound=axis.size) for n, axis in enumerate(used)}
        return kind, tuple(ex.substitute(e, named) for e in leaves), tuple(axis.size for axis in used)
    fixed = tuple(ex.substitute(e, {axis.symbol: ZERO for axis in axes}) for e in leaves)
    return kind, fixed, frozenset(_merged([(axis.size, row) for axis, row in zip(used, strides, strict=True)]))


def _merged(axes: list[tuple[Expr, tuple[Any, ...]]]) -> list[tuple[Expr, tuple[Any, ...]]]:
    """Axes of which one goes on where the other ends as one axis."""
    for outer in axes:
        for inner in axes:
            size, strides = inner
            if outer is not inner and outer[1] == tuple(stride * size for stride in strides):
                others = [axis for axis in axes if axis is not outer and axis is not inner]
                return _merged([*others, (outer[0] * size, strides)])
    return axes
