"""Tables whose rows a kernel looks up, and programs that take such a table in two halves.

In: a body over tiles. Out: the largest such table, and the statements that leave a program the rows of its half.

A row that indices name at random is read again before the results that stream through the cache have displaced it, as long as the table
fits there beside them. Where it does not, the programs of a first round do the rows that lie in the table's first half, those of
a second round the others. Every result is still written once; only the indices are read twice.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import ONE, Expr
from ...ir.kernel import KernelBody, Store
from ...ir.scalar import Scalar, loads, walk
from ...kernel_ir import Node, Statement, Variable
from .. import tiling

#: The mask of the rows that a program does, and which half that is.
MASK = kir.Variable("xhalf", frozenset({"x"}), torch.bool)
_HALF = kir.position("half")


@frozen
class Lookup:
    """A table of ``rows`` rows of ``row_bytes`` bytes; ``definition`` is the number of the one that a point along ``x`` reads."""

    definition: Scalar
    rows: int
    row_bytes: int


def largest_lookup(body: KernelBody, space: tiling.Space, dtypes: Mapping[str, torch.dtype]) -> Lookup | None:
    """The largest table that whole rows of a reduction come from; None where there is none, or none of a known size."""
    r = space.tile("r")
    if r is None or not r.numel.is_int:
        return None
    values = [statement.value for statement in body.statements]
    if any(node.kind == "masked" for node in walk(*values)):
        # What is looked up where a condition holds may be no row at all elsewhere.
        return None
    storage = {buffer.name: buffer.storage for buffer in body.buffers}
    written = {storage[statement.buffer] for statement in body.statements if isinstance(statement, Store)}
    found: dict[Lookup, int] = {}
    for node in loads(*values):
        for symbol in ex.free_symbols(node.index) if ex.coefficient(node.index, r.symbol) is ONE else ():
            rows = _rows_told_apart(symbol, r.symbol)
            # The second round reads the numbers again: no result may have taken their memory.
            if rows and not any(storage[read.buffer] in written for read in loads(symbol.definition)):
                lookup = Lookup(symbol.definition, rows, int(r.numel) * dtypes[node.buffer].itemsize)
                found[lookup] = lookup.rows * lookup.row_bytes
    return max(found, key=lambda lookup: (found[lookup], lookup.definition.key), default=None)


def _rows_told_apart(symbol: Expr, along_row: Expr) -> int:
    """Of how many rows a symbol is the number: 0 unless it is read from memory, the same for a whole row, and that is known."""
    if symbol.definition is None or symbol.bound is None or not symbol.bound.is_int:
        return 0
    places = [ex.free_symbols(node.index) for node in loads(symbol.definition)]
    return int(symbol.bound) if any(places) and not any(along_row in place for place in places) else 0


def choose_round(program: Variable, blocks: Variable) -> list[Statement]:
    """Which half of the table ``program`` takes, and which of the ``blocks`` along ``x`` it looks at."""
    return [
        kir.Assign((_HALF,), kir.arith("floordiv", program, blocks)),
        kir.Update((program,), kir.arith("mod", program, blocks)),
    ]


def choose_rows(number: Variable, rows: int, mask: Node | None) -> list[Statement]:
    """The mask of the rows whose ``number`` lies in the program's half, and an end for programs that have none."""
    first = kir.arith("eq", _HALF, kir.Number(0))
    inside = kir.arith("eq", kir.arith("lt", number, kir.Number(-(-rows // 2), number.dtype)), first)
    return [
        kir.Assign((MASK,), inside if mask is None else kir.All((mask, inside), mask.tiles | inside.tiles)),
        kir.If(kir.NoLane(MASK), (kir.Return(),)),
    ]
