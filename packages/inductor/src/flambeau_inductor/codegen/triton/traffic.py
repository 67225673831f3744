"""What a kernel moves: the facts that the block-size model decides on, and the bytes that a profile shows.

In: a body over tiles and the plan of its walks. Out: ``Traffic``, and about how many bytes one launch reads and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ... import expr as ex
from ...expr import ONE, ZERO, Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Store
from ...ir.scalar import Scalar, cost, loads, walk
from .. import tiling
from .lookups import largest_lookup
from .options import Traffic
from .passes import Plan, is_inner

#: An operation of this many instructions needs so many registers that a thread does four elements at a time at most.
_HEAVY = 45
Dtypes = Mapping[str, torch.dtype]
Access = tuple[str, Expr]


def accesses(body: KernelBody) -> tuple[list[Access], list[Access]]:
    """The distinct loads and stores of a body, as (buffer, index)."""
    read: dict[Access, None] = {}
    written: dict[Access, None] = {}
    for statement in body.statements:
        for node in loads(statement.value):
            read[(node.buffer, node.index)] = None
        if isinstance(statement, Store):
            written[(statement.buffer, statement.index)] = None
            if statement.mode != "set":
                read[(statement.buffer, statement.index)] = None
    return list(read), list(written)


def step(index: Expr, symbol: Expr) -> int:
    """How far apart in memory the first two points along ``symbol`` are, with every size at its hint; 0 where that is not known."""

    def at(position: int) -> int:
        return ex.evaluate(index, lambda s: position if s is symbol else 0 if s.definition is not None else _first(s))

    try:
        return at(1) - at(0)
    except ZeroDivisionError:
        return 0


def _first(symbol: Expr) -> int:
    """Tiles start at zero; a size has its hint."""
    return 0 if symbol.name in ("xi", "yi", "ri") else max(ex.hint(symbol), 1)


def traffic_of(body: KernelBody, space: tiling.Space, plan: Plan, dtypes: Dtypes) -> Traffic:
    """The traffic of a body whose indices are over the tiles of ``space``."""
    read, written = accesses(body)
    r, fast = space.tile("r"), space.tiles[-1].symbol
    along_r = _contiguous_along_r(read + written, space, dtypes)
    if r is not None and not along_r:
        fast = space.tiles[0].symbol
    streams = [dtypes[name].itemsize for name, index in read + written if step(index, fast)]
    rows: list[Access] = []
    if r is not None:
        x = space.tiles[0]
        wanted = {r.symbol} if x.numel is ONE else {r.symbol, x.symbol}
        rows = [(name, at) for name, at in read if wanted <= ex.free_symbols(at) and step(at, r.symbol)]
    stages = {stage for stage, s in zip(plan.stages, body.statements, strict=True) if is_inner(s)}
    return Traffic(
        widest=max(streams, default=4),
        narrowest=min(streams, default=4),
        moved=sum(streams),
        rows=len(rows),
        row_bytes=sum(dtypes[name].itemsize for name, _ in rows),
        walks=len(stages),
        chained=len(plan.pairs) > 0,
        accumulators=sum(isinstance(statement, Reduce) for statement in body.statements),
        along_r=along_r,
        segment=_segment(read + written, r),
        across=along_r and r is not None and any(_runs_across(index, space) for _, index in read),
        scans=any(isinstance(statement, ScanStep) for statement in body.statements),
        gathered=r is not None and any(lies_anywhere(index) and step(index, r.symbol) for _, index in read),
        looked_up=any(lies_anywhere(index) for _, index in read),
        written=ex.hint(_bytes_of(dict.fromkeys(written), space, dtypes)),
        heavy=any(cost(node, "cuda") >= _HEAVY for node in operations(body)),
        work=sum(cost(node, "cuda") for node in operations(body)),
        repeatable=_repeatable(body, space),
        lookup=largest_lookup(body, space, dtypes),
    )


def operations(body: KernelBody) -> Iterable[Scalar]:
    """Each operation of a body once."""
    return (node for node in walk(*(s.value for s in body.statements)) if node.kind == "op")


def _repeatable(body: KernelBody, space: tiling.Space) -> bool:
    """Whether blocks can follow each other in one program: points in whole vectors along one tile, which depend on their place alone."""
    (tile, *others) = space.tiles
    if others or tile.prefix != "x" or not tile.numel.is_int or int(tile.numel) % 8:
        return False
    if not all(isinstance(s, Store) and s.mode == "set" for s in body.statements):
        return False
    storage = {buffer.name: buffer.storage for buffer in body.buffers}
    read, written = ({storage[name] for name, _ in found} for found in accesses(body))
    return not read & written and all(node.op not in ("check_bounds", "philox_uniform") for node in operations(body))


def lies_anywhere(index: Expr) -> bool:
    """Whether an index that is read first says where."""
    return any(symbol.definition is not None for symbol in ex.free_symbols(index))


def _runs_across(index: Expr, space: tiling.Space) -> bool:
    x, r = (tile.symbol for tile in space.tiles)
    return {x, r} <= ex.free_symbols(index) and abs(step(index, x)) == 1 and abs(step(index, r)) > 1


def _segment(found: list[Access], r: tiling.Tile | None) -> int:
    """The shortest stretch of the row that the indices divide it into; 0 for none."""
    if r is None:
        return 0
    lengths = (part.length for _, index in found if (part := tiling.segments_of(r, 1, [index])) is not None)
    return min(lengths, default=0)


def _contiguous_along_r(found: list[Access], space: tiling.Space, dtypes: Dtypes) -> bool:
    """Whether most of the bytes run through memory along ``r``; accesses that neighbours along a tile share do not count."""
    r, x = space.tile("r"), space.tile("x")
    if r is None or x is None:
        return False
    votes = 0
    for name, index in found:
        if {r.symbol, x.symbol} <= ex.free_symbols(index):
            down, across = abs(step(index, r.symbol)), abs(step(index, x.symbol))
            if down and across:
                votes += dtypes[name].itemsize * ((down == 1) - (across == 1))
    return votes >= 0


def moved(body: KernelBody, space: tiling.Space, dtypes: Dtypes) -> Expr:
    """About how many bytes one launch reads and writes."""
    read, written = accesses(body)
    return _bytes_of(dict.fromkeys(read + written), space, dtypes)


def _bytes_of(found: Iterable[Access], space: tiling.Space, dtypes: Dtypes) -> Expr:
    sizes = {tile.symbol: tile.numel for tile in space.tiles}
    total: Expr = ZERO
    for name, index in found:
        points: Expr = ONE
        for symbol in sorted(ex.free_symbols(index), key=lambda s: s.key):
            points = points * sizes.get(symbol, ONE)
        total = total + points * dtypes[name].itemsize
    return total
