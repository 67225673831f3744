"""How a kernel's loops are laid out: which axis has the lanes, what the parallel extent counts.

In: a ``KernelBody``. Out: a ``LoopPlan``. Modes:

``flat``      no inner axes; lanes along the last outer axis; the extent counts elements (one axis), rows, or pieces of rows
``tile``      no inner axes; as ``flat`` but in blocks with a second outer axis, for accesses that run along that one (transposes)
``rows``      inner axes, lanes along the last of them; the extent counts outer points; scans go block by block
``columns``   inner axes, lanes along the last outer axis, which is cut into blocks; the extent counts (other points x blocks)
``scalar``    one element at a time; the extent counts outer points (one for serial kernels)
``scatter``   serial in all axes but the last, lanes along the last, whose blocks are the extent
"""

from __future__ import annotations

import torch
from attrs import frozen

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Store
from ...ir.layout import product
from ...ir.loops import SHORT_ROW, Axis
from ...ir.scalar import Scalar, cost, indirect_scalars, walk
from ...schedule.loops import index_expressions
from ...schedule.nest import values
from .dtypes import width
from .narrow import fits_int32
from .pairs import is_paired
from .passes import plan_passes, uses

#: Elements of a row piece, columns of a block, rows of a tile (multiples of any lane count).
PIECE, BLOCK, WIDE_BLOCK, TILE = 4096, (128, 64), (512, 256, 128), (64, 32, 16)
#: Lanes of the widest register: what is kept for each lane of a block has room for whole ones.
MOST_LANES = 16
#: Fewer blocks, or tiles, than this are made smaller.
BLOCKS_WANTED, TILES_WANTED = 4, 16
#: Columns that a tile takes one after another before its next rows: whole cache lines of every row that it writes.
TILE_COLUMNS = 64
#: Work (in simple instructions, each on one element) worth handing to another thread: two microseconds of a core with AVX-512.
GRAIN = 3 << 16
#: A load, or a store, of one element in the caches, in simple instructions: both and an addition take 0.1 ns there, a simple instruction 0.0099.
_ACCESS = 5


@frozen
class LoopPlan:
    """``outer`` are the axes that the extent counts one by one, ``vector`` the axis with the lanes, ``cut`` its piece length; ``lane_bytes`` of a register
    are a lane: 2 where values take two registers (``pairs.py``)."""

    mode: str
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    vector: Axis | None
    cut: int | None
    tiled: Axis | None
    extent: Expr
    grain: int
    lane_bytes: int

    @property
    def is_one_piece(self) -> bool:
        """Whether the axis of the lanes is known to be no longer than one piece."""
        return self.vector is not None and self.cut is not None and self.vector.size.hi <= self.cut


def plan_loops(body: KernelBody) -> LoopPlan:
    """Choose the mode and the sizes."""
    mode = mode_of(body)
    outer, inner = body.outer, body.inner
    vector: Axis | None = None
    cut: int | None = None
    tiled: Axis | None = None
    extent = product([axis.size for axis in outer])
    if mode == "flat":
        vector, outer, cut, extent = _flat(outer)
    elif mode == "tile":
        vector, tiled = outer[-1], _tiled_axis(body)
        outer = tuple(axis for axis in outer[:-1] if axis is not tiled)
        assert tiled is not None
        others = ex.hint(product([axis.size for axis in outer]))
        cut = _block(others, ex.hint(tiled.size), TILE, TILES_WANTED)
        extent = product([axis.size for axis in outer]) * _pieces(tiled.size, cut)
    elif mode == "rows":
        vector, inner = inner[-1], inner[:-1]
    elif mode == "columns":
        vector, outer = outer[-1], outer[:-1]
        scans = any(isinstance(s, ScanStep) for s in body.statements)
        others = ex.hint(product([axis.size for axis in outer]))
        cut = _block(others, ex.hint(vector.size), WIDE_BLOCK if scans else BLOCK)
        if vector.size.is_int:
            cut = min(cut, max(1, -(-int(vector.size) // MOST_LANES)) * MOST_LANES)
        extent = product([axis.size for axis in outer]) * _pieces(vector.size, cut)
    elif mode == "scatter":
        vector, outer, inner = outer[-1], (), outer[:-1]
        cut = _block(1, ex.hint(vector.size), WIDE_BLOCK)
        extent = _pieces(vector.size, cut)
    elif body.serial:
        outer, inner, extent = (), outer, ex.ONE
    paired = not body.in_order and is_paired(body, mode, vector)
    lane_bytes = 2 if paired else _lane_bytes(body, vector)
    return LoopPlan(mode, outer, inner, vector, cut, tiled, extent, _grain(body, extent), lane_bytes)


def _block(others: int, size: int, lengths: tuple[int, ...] = BLOCK, wanted: int = BLOCKS_WANTED) -> int:
    """Columns of a block: long runs through memory, unless that leaves too few blocks to share out."""
    return next((length for length in lengths if others * -(-size // length) >= wanted), lengths[-1])


def _pieces(size: Expr, length: int) -> Expr:
    return ex.floor_div(size + (length - 1), ex.Int(length))


def _flat(outer: tuple[Axis, ...]) -> tuple[Axis, tuple[Axis, ...], int | None, Expr]:
    vector, rest = outer[-1], outer[:-1]
    if not rest:
        return vector, (), None, vector.size
    rows = product([axis.size for axis in rest])
    if ex.hint(rows) < 64 and ex.hint(vector.size) >= 2 * PIECE:
        return vector, rest, PIECE, rows * _pieces(vector.size, PIECE)
    return vector, rest, None, rows


def mode_of(body: KernelBody) -> str:
    """The mode of its loops."""
    if body.serial:
        return "scatter" if _separate_columns(body) else "scalar"
    if not body.inner:
        if not body.outer:
            return "scalar"
        return "tile" if _tiled_axis(body) is not None else "flat"
    scans = any(isinstance(s, ScanStep) for s in body.statements)
    arguments = any(isinstance(s, Reduce) and s.kind in ("argmax", "argmin") for s in body.statements)
    along_outer = bool(body.outer) and _score(body, body.outer[-1]) > 0
    if body.in_order:
        # Lanes along an inner axis would each add up a part.
        pairs = any(isinstance(s, ScanStep | Reduce) and s.kind == "logaddexp" for s in body.statements)
        return "columns" if along_outer and not (arguments or pairs) else "scalar"
    if scans:
        return "columns" if along_outer else "rows" if not arguments and _scans_fit(body) else "scalar"
    if arguments:
        return "rows" if _arguments_fit(body) else "scalar"
    if along_outer and _score(body, body.outer[-1]) > _score(body, body.inner[-1]):
        return "columns"
    if ex.hint(body.inner[-1].size) < 4 and along_outer:
        return "columns"
    return "rows"


def _scans_fit(body: KernelBody) -> bool:
    """Whether scans are along the one inner axis, long enough for lanes, and used in the pass that takes them alone."""
    if len(body.inner) != 1 or ex.hint(body.inner[0].size) < SHORT_ROW:
        return False
    passes = plan_passes(body.statements, {b.name: b for b in body.buffers}).inner
    scans = {s.name: number for number, statements in enumerate(passes) for s in statements if isinstance(s, ScanStep)}
    return all(
        scans.get(name, number) == number
        for number, statements in enumerate(passes)
        for statement in statements
        for name in uses(statement)
    )


def _arguments_fit(body: KernelBody) -> bool:
    total = product([axis.size for axis in body.inner])
    reductions = [s for s in body.statements if isinstance(s, Reduce) and s.kind in ("argmax", "argmin")]
    return total.hi < 2**31 - 1 and all(s.value.dtype.itemsize >= 4 for s in reductions)


def _score(body: KernelBody, axis: Axis) -> int:
    """How many accesses run along ``axis`` with stride one, less those that jump."""
    score = 0
    for index, _ in index_expressions(body.statements):
        stride = ex.coefficient(index, axis.symbol)
        if stride is ex.ONE:
            score += 1
        elif stride is not ex.ZERO:
            score -= 1
    return score


def _tiled_axis(body: KernelBody) -> Axis | None:
    """The outer axis (not the last) along which some access runs with stride one while jumping along the last."""
    if len(body.outer) < 2 or ex.hint(body.outer[-1].size) < 8:
        return None
    last = body.outer[-1]
    for index, _ in index_expressions(body.statements):
        stride = ex.coefficient(index, last.symbol)
        if stride in (None, ex.ZERO, ex.ONE):
            continue
        for axis in body.outer[:-1]:
            if ex.coefficient(index, axis.symbol) is ex.ONE and ex.hint(axis.size) >= 8:
                return axis
    return None


def _separate_columns(body: KernelBody) -> bool:
    """True for a scatter whose last axis has lanes that never meet: stride one, below the step of everything indirect."""
    if len(body.statements) != 1 or not body.outer:
        return False
    store = body.statements[0]
    assert isinstance(store, Store)
    last = body.outer[-1]
    if ex.coefficient(store.index, last.symbol) is not ex.ONE or not last.size.is_int or ex.hint(last.size) < 4:
        return False
    for term, factor in ex.linear(store.index - last.symbol)[1]:
        if any(s.definition is not None and last.symbol in _below(s.definition) for s in ex.free_symbols(term)):
            return False
        if not last.size.is_int or factor % int(last.size):
            return False
    return True


def _below(node: Scalar) -> set[Expr]:
    return {s for n in walk(node) if n.kind in ("load", "index") for s in ex.free_symbols(n.index)}


def _lane_bytes(body: KernelBody, vector: Axis | None) -> int:
    """8 when a lane of some vector value needs it, else 4."""
    if vector is None:
        return 4
    varying: dict[Scalar, bool] = {}
    reductions = {s.name for s in body.statements if not isinstance(s, Store)}
    roots = [v for s in body.statements for v in values(s)]
    for node in walk(*roots):
        here = any(varying[c] for c in node.children + indirect_scalars(node))
        if node.kind in ("load", "index"):
            here = here or vector.symbol in ex.free_symbols(node.index)
        here = here or (node.kind == "reduced" and node.args[0] in reductions and vector in body.outer)
        varying[node] = here
        if here and width(node.dtype) == 8 and not fits_int32(node):
            return 8
    for statement in body.statements:
        if (
            isinstance(statement, Store)
            and statement.value.dtype is torch.int64
            and varying.get(statement.value, False)
        ):
            return 8
        if (
            not isinstance(statement, Store)
            and statement.value.dtype.itemsize == 8
            and varying.get(statement.value, True)
        ):
            return 8
        if isinstance(statement, Reduce) and statement.dtype is torch.int64 and vector in body.outer:
            return 8
    return 4


def work_of(root: Scalar) -> int:
    """Cost of one evaluation in simple instructions, its loads included."""
    return sum(_ACCESS if node.kind == "load" else cost(node, "cpu") for node in walk(root))


def _grain(body: KernelBody, extent: Expr) -> int:
    points = 0
    outer, inner = ex.hint(product([a.size for a in body.outer])), ex.hint(product([a.size for a in body.inner]))
    for statement in body.statements:
        deep = not isinstance(statement, Store) or statement.level == "inner"
        work = sum(work_of(v) for v in values(statement)) + (_ACCESS if isinstance(statement, Store) else 1)
        points += work * outer * (inner if deep else 1)
    per_iteration = max(points // max(ex.hint(extent), 1), 1)
    return max(GRAIN // per_iteration, 1)
