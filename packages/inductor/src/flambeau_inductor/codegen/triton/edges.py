"""Rows that do not start at a multiple of sixteen bytes, or do not end at one: whole vectors inside, single elements at the edges.

In: the inner statements of one walk over a row, one row a program. Out: an ``Inside``: from where a loop must count so that its
blocks start on whole vectors, and which accesses are whole vectors then. Such a loop has two bodies: blocks that lie inside the row
need no mask, which would keep the compiler from using vectors; the first and the last block have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from attrs import frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Statement, Store
from ...ir.scalar import loads
from ...kernel_ir import Node, Variable
from .. import tiling
from .values import Emitter

#: The most elements one access holds.
_WIDEST = 8


@frozen
class Inside:
    """``vector`` elements are one access; ``row`` is where the row starts that vectors are counted from; ``rows`` are the starts
    of all rows that are whole vectors when it is."""

    vector: int
    row: Expr
    rows: tuple[Expr, ...]

    @property
    def aligned(self) -> bool:
        """Whether rows start at whole vectors anyway."""
        return ex.mod(self.row, ex.Int(self.vector)) is ex.ZERO


def inside_of(statements: Sequence[Statement], r: tiling.Tile, dtypes: Mapping[str, torch.dtype]) -> Inside | None:
    """The vectors of a walk; None where nothing is gained: rows are whole vectors already, or nothing runs along them."""
    rows: dict[Expr, int] = {}
    narrowest = 16
    for name, index in _accesses(statements):
        if ex.coefficient(index, r.symbol) is not ex.ONE:
            continue
        row = index - r.symbol
        symbols = ex.free_symbols(row)
        if r.symbol in symbols or row.lo < 0 or any(s.definition is not None for s in symbols):
            continue
        rows[row] = rows.get(row, 0) + dtypes[name].itemsize
        narrowest = min(narrowest, dtypes[name].itemsize)
    if not rows:
        return None
    vector = max(2, min(16 // narrowest, _WIDEST))
    step = ex.Int(vector)
    groups = {
        row: tuple(other for other in rows if ex.mod(other - row, step) is ex.ZERO or other is row) for row in rows
    }
    best = max(groups, key=lambda row: (sum(rows[other] for other in groups[row]), -row.key))
    found = Inside(vector, best, groups[best])
    return None if found.aligned and ex.mod(r.numel, step) is ex.ZERO else found


def _accesses(statements: Sequence[Statement]) -> list[tuple[str, Expr]]:
    found = [(n.buffer, n.index) for s in statements for n in loads(s.value)]
    return found + [(s.buffer, s.index) for s in statements if isinstance(s, Store)]


def open_rows(
    emitter: Emitter, inside: Inside, stage: int, program: Mapping[Expr, Node]
) -> tuple[Variable | None, dict[Expr, kir.AlignDown]]:
    """Write the rows' starts; how far the first vector starts before the row, None for not at all, and each row's first vector."""
    body = emitter.scopes[0].body
    vector, bases = inside.vector, {}
    # The row that vectors are counted from comes first.
    for number, row in enumerate(sorted(inside.rows, key=lambda row: (row is not inside.row, row.key))):
        names = tuple(
            (s, program[s] if s in program else kir.position(emitter.scalars[s.name])) for s in ex.free_symbols(row)
        )
        start = kir.position(f"row{stage}_{number}")
        body.append(kir.Assign((start,), kir.Index(row, names, kir.NO_TILES)))
        bases[row] = kir.AlignDown(start, vector)
    if inside.aligned:
        return None, bases
    shift, base = kir.position(f"shift{stage}"), bases[inside.row]
    body.append(kir.Assign((shift,), kir.arith("sub", base.value, base)))
    return shift, bases
