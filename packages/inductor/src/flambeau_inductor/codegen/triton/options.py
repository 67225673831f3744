"""Block sizes, warps and pipeline stages of a kernel, from its sizes and its device.

In: the tiles of a kernel, ``Traffic`` (what one point of it moves) and a ``Device``. Out: a ``Config``. The model is analytic
and deterministic. What it aims at:

- sixteen bytes a load, and enough of them in flight on every multiprocessor to hide the latency of memory;
- at least a few programs for each multiprocessor;
- a row that is walked more than once stays in registers, or at least in the L2 cache.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve, field, frozen

from ... import expr as ex
from ...devices import Facts as Device
from ...devices import Tuning
from .. import tiling
from .lookups import Lookup

_MOST_WARPS = 32


@frozen
class Config:
    """``blocks`` maps a tile's prefix to its block size; ``persistent`` says whether one block covers a whole row, ``pieces``
    whether several do that are all kept; ``streamed``, whether results leave the cache first. ``repeats``: blocks that a program
    of a pointwise kernel does one after the other, each loaded while the one before it is worked on. ``halves``: a table that rows
    are looked up in is taken in two halves (``lookups.py``)."""

    blocks: Mapping[str, int] = field(hash=False)
    num_warps: int
    num_stages: int = 1
    persistent: bool = False
    pieces: bool = False
    streamed: bool = False
    repeats: int = 1
    halves: bool = False


@frozen
class Traffic:
    """What a kernel moves.

    ``widest`` and ``narrowest``: bytes of an element among the accesses that run through memory. ``moved``: bytes that one point
    of the whole space loads and stores. ``rows``: how many distinct rows a reduction loads, ``row_bytes`` their bytes per element, and ``walks``
    how often it goes over them; ``chained`` where that is fewer than the reductions need of one another; ``accumulators`` it keeps while
    it does. ``along_r``: its memory is contiguous along ``r``, not ``x``. ``segment``: the shortest stretch of a row
    that its indices divide it into. ``across``: something runs through memory along ``x`` although most runs along ``r``.
    ``scans``: it keeps running values. ``gathered``: rows lie where indices say that are read first; ``looked_up``: so does anything
    that is read. ``written``: bytes of all results. ``heavy``: functions whose slow paths take many registers. ``work``: about how many
    instructions one point takes, ``repeatable``: whether the kernel can be written for several blocks a program. ``lookup``: the largest
    table that whole rows come from.
    """

    widest: int = 4
    narrowest: int = 4
    moved: int = 8
    rows: int = 1
    row_bytes: int = 4
    walks: int = 1
    chained: bool = False
    accumulators: int = 1
    along_r: bool = True
    segment: int = 0
    across: bool = False
    scans: bool = False
    gathered: bool = False
    looked_up: bool = False
    written: int = 0
    heavy: bool = False
    work: int = 0
    repeatable: bool = False
    lookup: Lookup | None = None


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``max(n, 1)``."""
    return 1 << max(n - 1, 0).bit_length()


def choose(space: tiling.Space, traffic: Traffic, device: Device) -> Config:
    """The configuration of a kernel."""
    config = _blocks(space, traffic, device)
    # A table that is looked up stays in the cache, if results that do not fit there leave it first.
    streamed = traffic.looked_up and traffic.written > device.cache
    halves = streamed and config.persistent and _gains_by_halves(traffic.lookup, config.blocks["x"], space, device)
    return evolve(config, streamed=streamed, halves=halves)


def _gains_by_halves(lookup: Lookup | None, together: int, space: tiling.Space, device: Device) -> bool:
    """Whether rows of a table, ``together`` of them for each program, are read again, but too late to be in the cache still."""
    if lookup is None or lookup.row_bytes * together < device.tuning.halved_bytes:
        return False
    large = lookup.rows * lookup.row_bytes > device.tuning.large_table * device.cache
    return large and ex.hint(space.tiles[0].numel) >= lookup.rows


def without_rows(tuning: Tuning) -> Tuning:
    """A tuning under which no row that is reduced is kept in registers."""
    return evolve(tuning, persistent_elements=0, persistent_once_elements=0, pieces_elements=0, column_elements=0)


def _blocks(space: tiling.Space, traffic: Traffic, device: Device) -> Config:
    if space.tile("r") is not None:
        return _reduction(space, traffic, device)
    if space.tile("y") is not None:
        return _transpose(space, traffic, device)
    return _pointwise(space, traffic, device)


def _pointwise(space: tiling.Space, traffic: Traffic, device: Device) -> Config:
    numel = max(ex.hint(space.tiles[0].numel), 1)
    tuning = device.tuning
    if traffic.repeatable and traffic.work >= tuning.busy * traffic.moved:
        each = max(4, min(16 // traffic.narrowest, 8))
        if numel >= 128 * tuning.repeated * tuning.full * device.multiprocessors:
            return Config({"x": 128 * each}, 4, repeats=tuning.repeated // each)
    # A thread moves about 64 bytes, by accesses of sixteen bytes where the narrowest type is not a byte.
    each = next_power_of_two(64 // max(traffic.moved, 1))
    each = 4 if traffic.heavy else max(4, min(each, 16), min(16 // traffic.narrowest, 8))
    block = 128 * each
    while block > 128 and numel < block * 2 * device.multiprocessors:
        block //= 2
    block = min(block, next_power_of_two(numel))
    return Config({"x": block}, max(1, min(4, block // (32 * min(each, 8)))))


def _transpose(space: tiling.Space, traffic: Traffic, device: Device) -> Config:
    y, x = (max(ex.hint(tile.numel), 1) for tile in space.tiles)
    side = 64 if traffic.widest <= 4 and not traffic.heavy else 32
    while side > 32 and (y // side) * (x // side) < 2 * device.multiprocessors:
        side //= 2
    blocks = {"y": min(side, next_power_of_two(y)), "x": min(side, next_power_of_two(x))}
    each = 4 if traffic.heavy else 16 if traffic.widest <= 4 else 8
    return Config(blocks, _warps(blocks["x"] * blocks["y"], 32 * each))


def _reduction(space: tiling.Space, traffic: Traffic, device: Device) -> Config:
    x_tile, r_tile = space.tiles
    rows, columns = max(ex.hint(x_tile.numel), 1), max(ex.hint(r_tile.numel), 1)
    if not traffic.along_r:
        return _down_columns(rows, columns, r_tile.numel.is_int, traffic, device)
    width = next_power_of_two(columns)
    if r_tile.numel.is_int and width <= _most_kept(rows, traffic, device):
        return persistent(rows, width, traffic, device)
    if r_tile.numel.is_int and fits_pieces(columns, traffic, device):
        return in_pieces(columns, traffic)
    return looped(rows, columns, traffic, device)


def _most_kept(rows: int, traffic: Traffic, device: Device) -> int:
    """The longest row worth keeping: one that is walked once gains nothing beyond a block."""
    longest = device.tuning.persistent_elements
    if traffic.walks < 2 and not traffic.chained:
        return device.tuning.persistent_once_elements
    if traffic.rows <= 1 and rows > device.multiprocessors:
        # A row of more fills the registers of a multiprocessor: while it is worked on, nothing would be on its way from memory.
        return longest // 2
    return longest // min(max(traffic.rows, 1), 4)


def fits_pieces(columns: int, traffic: Traffic, device: Device) -> bool:
    """Whether a row that is walked again is kept without padding: it leaves registers for other programs, and has whole vectors."""
    again = traffic.walks > 1 or traffic.chained
    elements = columns * max(traffic.rows, 1)
    return again and not traffic.scans and elements <= device.tuning.pieces_elements and columns % _vector(traffic) == 0


def in_pieces(columns: int, traffic: Traffic) -> Config:
    """Blocks that hold a row together."""
    # Three programs of 256 threads share a multiprocessor where each thread keeps about 40 elements.
    warps = 8 if columns * max(traffic.rows, 1) <= 10240 else 16
    return Config({"x": 1, "r": 32 * warps * _vector(traffic)}, warps, pieces=True)


def _vector(traffic: Traffic) -> int:
    """Elements in an access of sixteen bytes."""
    return 16 // min(max(traffic.narrowest, 2), 8)


def persistent(rows: int, width: int, traffic: Traffic, device: Device) -> Config:
    """A block that holds whole rows."""
    x_block = max(1, min(tiling.ROWS_ELEMENTS // width, next_power_of_two(rows), 64))
    if traffic.across:
        # A sector of 32 bytes holds as many neighbours across the rows.
        x_block = max(x_block, min(8, 8192 // width, next_power_of_two(rows)), 1)
    # Fewer rows a program keep the machine full.
    while x_block > 1 and rows < x_block * 2 * device.multiprocessors:
        x_block //= 2
    elements = x_block * width
    each = 8 if elements <= 2048 else 16 if elements <= 8192 else 32
    if traffic.gathered:
        # Two loads wait for each other there: more of them at once.
        each = 32
    return Config({"x": x_block, "r": width}, _warps(elements, 32 * each), persistent=True)


def looped(rows: int, columns: int, traffic: Traffic, device: Device) -> Config:
    """A loop over each row."""
    if traffic.walks > 1:
        # The rows being worked on at one time fit two thirds of the cache, so that a later walk finds its row there.
        row = columns * max(traffic.row_bytes, 1)
        resident = max(1, int(device.cache * 2 / 3 / (device.multiprocessors * row)))
        warps = max(8, min(_MOST_WARPS, next_power_of_two(device.threads // 32 // resident + 1) // 2))
    else:
        warps = 32 if rows < device.multiprocessors else 16 if rows < 2 * device.multiprocessors else 8
    if traffic.scans:
        warps = min(warps, 16)
    # A row that is walked again has edges that are walked again: short blocks there, else enough bytes in flight.
    wanted = (
        8 if traffic.walks > 1 or traffic.scans or warps == _MOST_WARPS else (64 if traffic.accumulators < 2 else 32)
    )
    each = max(8, min(16, next_power_of_two(wanted // max(traffic.row_bytes, 1))))
    width = max(next_power_of_two(columns), 16)
    r_block = min(width, 32 * warps * each)
    # No mask is needed where blocks fill the row.
    even = traffic.segment & -traffic.segment
    if even >= 512:
        # What is the same along a segment is one value for a block.
        r_block = min(r_block, even)
        warps = min(warps, max(4, r_block // (32 * each)))
    r_block = next((part for part in (r_block, r_block // 2) if part and columns % part == 0), r_block)
    # A shorter block has fewer threads rather than shorter accesses.
    warps = min(warps, max(4, r_block // (32 * _vector(traffic))), max(1, r_block // 32))
    x_block = 1
    while x_block * r_block < 1024 and rows >= 4 * x_block * device.multiprocessors:
        x_block *= 2
    return Config({"x": x_block, "r": r_block}, warps)


def _down_columns(rows: int, columns: int, static: bool, traffic: Traffic, device: Device) -> Config:
    """Threads side by side read neighbouring ``x``, each walks down its own column."""
    # A warp's load should cover at least a line of 128 bytes; narrow blocks where there would be too few programs.
    x_block = min(max(256 // max(traffic.narrowest, 1), 32), 128, next_power_of_two(rows))
    while x_block > 64 // max(traffic.narrowest, 1) and rows < x_block * device.multiprocessors:
        x_block //= 2
    height = next_power_of_two(columns)
    kept = static and height <= device.tuning.column_elements
    if kept:
        return Config({"x": x_block, "r": height}, _warps(x_block * height, 256), persistent=True)
    r_block = max(4, min(height, 4096 // x_block))
    return Config({"x": x_block, "r": r_block}, _warps(x_block * r_block, 512 if traffic.walks < 2 else 256))


def _warps(elements: int, per_warp: int) -> int:
    return max(1, min(_MOST_WARPS, next_power_of_two(elements // per_warp)))
