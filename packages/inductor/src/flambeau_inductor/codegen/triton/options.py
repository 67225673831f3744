"""Block sizes, warps and pipeline stages of a kernel, from its sizes alone.

In: the tiles of a kernel, the widest and total element widths it moves per point, and along which tile its memory is contiguous.
Out: ``Launch`` facts. The model is analytic and deterministic: the same kernel gets the same numbers on every machine.
Numbers are for sm_90 (132 multiprocessors, 64 warps each) and sound for every GPU since sm_80.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ... import expr as ex
from .. import tiling

#: A row of at most this many elements is kept in registers from its first load to its last use.
PERSISTENT_ELEMENTS = 8192
_MULTIPROCESSORS = 132
#: Enough programs to fill the machine: two waves.
_WANTED_PROGRAMS = 2 * _MULTIPROCESSORS


@frozen
class Config:
    """``blocks`` maps a tile's prefix to its block size; ``persistent`` says whether one block covers a whole row."""

    blocks: Mapping[str, int]
    num_warps: int
    num_stages: int = 1
    persistent: bool = False


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``max(n, 1)``."""
    return 1 << max(n - 1, 0).bit_length()


def choose(space: tiling.Space, widest: int, reduced_contiguous: bool, rows_kept: int, looped_only: bool) -> Config:
    """The configuration of a kernel.

    ``widest``: bytes of its widest element. ``reduced_contiguous``: its memory is contiguous along ``r``, not ``x``.
    ``rows_kept``: how many distinct rows it loads. ``looped_only``: the size of a row must not decide.
    """
    if space.tile("r") is not None:
        return _reduction(space, reduced_contiguous, rows_kept, looped_only)
    if space.tile("y") is not None:
        return _transpose(space, widest)
    return _pointwise(space, widest)


def _pointwise(space: tiling.Space, widest: int) -> Config:
    numel = max(ex.hint(space.tiles[0].numel), 1)
    # Sixteen bytes a thread of the widest type is one load instruction; more of them in flight hide latency.
    block = 1024 if widest <= 4 else 512
    while block > 128 and numel < block * _WANTED_PROGRAMS:
        block //= 2
    block = min(block, next_power_of_two(numel))
    return Config({"x": block}, _warps(block, 256 if widest <= 4 else 128))


def _transpose(space: tiling.Space, widest: int) -> Config:
    y, x = (max(ex.hint(tile.numel), 1) for tile in space.tiles)
    side = 64 if widest <= 2 else 32
    blocks = {"y": min(side, next_power_of_two(y)), "x": min(side, next_power_of_two(x))}
    return Config(blocks, _warps(blocks["x"] * blocks["y"], 256))


def _reduction(space: tiling.Space, contiguous: bool, rows_kept: int, looped_only: bool) -> Config:
    x_tile, r_tile = space.tiles
    rows, columns = max(ex.hint(x_tile.numel), 1), max(ex.hint(r_tile.numel), 1)
    width = next_power_of_two(columns)
    static = r_tile.numel.is_int
    limit = PERSISTENT_ELEMENTS // max(1, min(rows_kept, 4)) if rows_kept > 2 else PERSISTENT_ELEMENTS
    if static and not looped_only and (width <= limit if contiguous else width <= 64):
        return _persistent(rows, width, contiguous)
    if not contiguous:
        # Threads side by side read neighbouring rows; each walks down its own column.
        x_block = min(64 if rows >= 64 * _MULTIPROCESSORS else 32, next_power_of_two(rows))
        r_block = min(width, max(1, 2048 // x_block))
        return Config({"x": x_block, "r": r_block}, _warps(x_block * r_block, 256))
    x_block = 1 if rows < 4 * _WANTED_PROGRAMS or columns >= 2048 else 2
    r_block = min(width, 4096 if rows < _MULTIPROCESSORS else 2048)
    return Config({"x": x_block, "r": r_block}, _warps(x_block * r_block, 256))


def _persistent(rows: int, width: int, contiguous: bool) -> Config:
    target = 1024 if contiguous else 2048
    x_block = max(1, min(target // width, next_power_of_two(rows), 64))
    # Fewer rows a program keep the machine full; down a column, neighbouring lanes must read neighbouring columns.
    while x_block > (1 if contiguous else 16) and rows < x_block * _WANTED_PROGRAMS:
        x_block //= 2
    return Config({"x": x_block, "r": width}, _warps(x_block * width, 512 if width > 2048 else 256), persistent=True)


def _warps(elements: int, per_warp: int) -> int:
    return max(1, min(16, next_power_of_two(elements // per_warp)))
