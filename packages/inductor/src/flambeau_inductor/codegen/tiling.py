"""From a kernel's axes to the few flat loops a GPU program walks.

In: the outer and inner axes of a ``KernelBody`` and the indices its statements use. Out: a ``Space``: one or two tiles (``x``;
``y`` and ``x`` where reads and writes are contiguous along different axes; ``x`` and ``r`` with a reduction) and, for every axis,
the expression of the tiles that gives its value. Each tile is a row-major flattening of neighbouring axes, so that an index
that runs through memory in order simplifies to the tile's own symbol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from .. import expr as ex
from ..expr import ONE, Expr, Symbol
from ..ir.kernel import KernelBody, Statement, Store
from ..ir.layout import product
from ..ir.loops import Axis
from ..ir.scalar import loads


@frozen
class Tile:
    """One flat loop: ``prefix`` is ``"x"``, ``"y"`` or ``"r"``; ``symbol`` runs over ``[0, numel)``."""

    prefix: str
    symbol: Expr
    numel: Expr


@frozen
class Space:
    """``tiles`` in the order of a block's dimensions; ``values`` maps each axis symbol to an expression of tile symbols."""

    tiles: tuple[Tile, ...]
    values: Mapping[Expr, Expr]

    def tile(self, prefix: str) -> Tile | None:
        """The tile called ``prefix``, if there is one."""
        return next((tile for tile in self.tiles if tile.prefix == prefix), None)


def space_of(body: KernelBody) -> Space:
    """The tiles of ``body``."""
    divided: dict[Expr, Expr] = {}
    if body.inner:
        order, divided = _sharing_order(body)
        parts = [("x", order), ("r", body.inner)]
    else:
        split = _transposed_split(body)
        parts = [("x", body.outer)] if split is None else [("y", body.outer[:split]), ("x", body.outer[split:])]
    tiles: list[Tile] = []
    values: dict[Expr, Expr] = {}
    for prefix, axes in parts:
        tile, mapping = flatten(axes, prefix)
        tiles.append(tile)
        values.update(mapping)
    values |= {axis: ex.substitute(whole, values) for axis, whole in divided.items()}
    return Space(tuple(tiles), values)


def flat_space(body: KernelBody) -> Space:
    """One tile over all outer axes."""
    tile, values = flatten(body.outer, "x")
    return Space((tile,), values)


def flatten(axes: Sequence[Axis], prefix: str) -> tuple[Tile, dict[Expr, Expr]]:
    """One tile over ``axes`` in row-major order, and each axis as an expression of it."""
    numel = product([axis.size for axis in axes])
    symbol = Symbol(f"{prefix}i", bound=numel)
    values: dict[Expr, Expr] = {}
    stride: Expr = ONE
    for position, axis in reversed(list(enumerate(axes))):
        if axis.size is ONE:
            values[axis.symbol] = ex.ZERO
            continue
        value = symbol // stride
        outermost = all(other.size is ONE for other in axes[:position])
        values[axis.symbol] = value if outermost else value % axis.size
        stride = stride * axis.size
    return Tile(prefix, symbol, numel), values


@frozen
class Segments:
    """A tile whose blocks never cross a multiple of ``length``: its symbol is ``number * length + within``, and ``number`` is one
    value for a whole block."""

    tile: Tile
    length: int
    number: Expr
    within: Expr


def segments_of(tile: Tile, block: int, indices: Iterable[Expr]) -> Segments | None:
    """The shortest segments that the indices divide ``tile`` into, if blocks of ``block`` fit them."""
    lengths: set[int] = set()
    for index in indices:
        for node in ex.walk(index):
            if node.op in ("floordiv", "mod") and node.args[0] is tile.symbol and node.args[1].is_int:
                lengths.add(int(node.args[1]))
    fitting = [n for n in lengths if n % block == 0 and n > 1]
    if not fitting or not tile.numel.is_int:
        return None
    length = min(fitting)
    count = ex.floor_div(tile.numel + (length - 1), ex.Int(length))
    number = Symbol(f"{tile.prefix}n", bound=count)
    return Segments(tile, length, number, Symbol(f"{tile.prefix}w", bound=ex.Int(length)))


def statement_indices(statement: Statement) -> Iterable[Expr]:
    """Every memory index of a statement: what it stores to and what it loads."""
    if isinstance(statement, Store):
        yield statement.index
    yield from (node.index for node in loads(statement.value))


#: Rows of at least this many elements may lie anywhere.
_LONG_ROW = 128
#: Elements of short rows that a program does at once.
ROWS_ELEMENTS = 1024


def _sharing_order(body: KernelBody) -> tuple[Sequence[Axis], dict[Expr, Expr]]:
    """The outer axes, so that neighbours share rows that they read: an axis that these rows do not move along comes last.

    Of that axis as many points as a program does come last, and the others first: what programs write at one time should lie
    close together. An axis that is divided is given as an expression of its two parts.
    Only where every other row is gathered: rows that are read in order stay in order.
    """
    axes = [axis for axis in body.outer if axis.size is not ONE]
    inner = {axis.symbol for axis in body.inner}
    width = ex.hint(product([axis.size for axis in body.inner]))
    if len(axes) < 2 or width < _LONG_ROW:
        return body.outer, {}
    free, gathered = set(axes), False
    for index in (node.index for statement in body.statements for node in loads(statement.value)):
        symbols = ex.free_symbols(index)
        missing = {axis for axis in axes if axis.symbol not in symbols}
        if any(symbol.definition is not None for symbol in symbols):
            gathered = True
        elif inner & symbols and len(missing) < len(axes):
            free &= missing
    last = [axis for axis in axes if axis in free]
    if not gathered or not last or len(last) == len(axes):
        return body.outer, {}
    others = [axis for axis in body.outer if axis not in last]
    *outermost, divided = last
    together = max(ROWS_ELEMENTS >> (width - 1).bit_length(), 1)
    if together == 1 or not divided.size.is_int or int(divided.size) % together:
        return [*others, *last], {}
    sizes = {"few": ex.Int(together), "groups": divided.size // together}
    few, groups = (Axis(Symbol(f"{divided.symbol.name}_{name}", bound=size), size) for name, size in sizes.items())
    return [*outermost, groups, *others, few], {divided.symbol: groups.symbol * together + few.symbol}


#: Below this many elements along an axis, reading against the grain costs less than a second tile dimension.
_MINIMUM_EXTENT = 16


def _transposed_split(body: KernelBody) -> int | None:
    """Where to cut ``outer`` in two tiles: behind an axis that some index is contiguous along, while others are contiguous
    along the last one. None for one tile."""
    axes = body.outer
    if len(axes) < 2 or ex.hint(axes[-1].size) < _MINIMUM_EXTENT:
        return None
    contiguous: set[int] = set()
    for statement in body.statements:
        for index in statement_indices(statement):
            strides = [ex.coefficient(index, axis.symbol) for axis in axes]
            unit = [n for n, stride in enumerate(strides) if stride is ONE and axes[n].size is not ONE]
            # Contiguous along n and strided along the last axis: a transposed access.
            if unit and unit[-1] != len(axes) - 1 and strides[-1] is not ex.ZERO:
                contiguous.add(unit[-1])
    candidates = [n for n in contiguous if ex.hint(axes[n].size) >= _MINIMUM_EXTENT]
    return max(candidates) + 1 if candidates else None
