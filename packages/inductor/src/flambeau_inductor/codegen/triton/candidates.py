"""The configurations of a kernel that are worth measuring.

In: a body. Out: a ``Tunable``: the model's configuration first, then other ways to hold a row and its neighbours in blocks and warps. None for kernels
that there is nothing to choose about, or that would be measured wrongly: one whose accesses depend on values, one whose program takes its points in turn, one that
adds to memory that others add to.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from attrs import evolve

from ... import expr as ex
from ...devices import Facts as Device
from ...devices import device_facts
from ...ir.kernel import KernelBody, Store
from .. import tiling
from ..errors import UnsupportedKernel
from ..tunable import Tunable, bucket
from . import options
from .kernel import Generator
from .options import Config, Traffic, next_power_of_two
from .traffic import operations

#: Configurations that are measured at most.
_MOST = 6
_MOST_WARPS = 32
#: Elements of a block that a thread has at least and at most: more do not stay in registers.
_LEAST_EACH, _MOST_EACH = 1, 64
#: The longest side of a block that is not a row.
_LONGEST_SIDE = 8192
#: A row of fewer elements is not worth a loop.
_WORTH_A_LOOP = 2048


def tunable(body: KernelBody) -> Tunable | None:
    """What may be tried for ``body``."""
    if body.scalars or any(isinstance(s, Store) and s.mode != "set" for s in body.statements):
        return None
    try:
        generator = Generator(body, None, "")
    except UnsupportedKernel:
        return None
    traffic, space, base = generator.traffic, generator.space, generator.config
    if traffic is None or traffic.looked_up or generator.serial or generator.mirrored:
        return None
    device = device_facts(body.device)
    return Tunable(
        asked=_asked(body, space, traffic),
        seconds=ex.hint(generator.moved) / device.bandwidth,
        launches=tuple(candidates(base, space, traffic, device)),
        neighbours=partial(_neighbours, space, traffic, device),
        record=Config,
        fits=partial(_fits, space, traffic, device),
    )


def candidates(base: Config, space: tiling.Space, traffic: Traffic, device: Device) -> list[Config]:
    """``base``, other strategies for the same kernel, and neighbours of ``base``."""
    found = dict.fromkeys([base, *_strategies(base, space, traffic, device)])
    found |= dict.fromkeys(_neighbours(space, traffic, device, base))
    return [config for config in found if config is base or _fits(space, traffic, device, config)][:_MOST]


def _strategies(base: Config, space: tiling.Space, traffic: Traffic, device: Device) -> Iterator[Config]:
    """Other ways to go over the same space."""
    r_tile, x_tile = space.tile("r"), space.tiles[0]
    if r_tile is None:
        if base.repeats > 1:
            yield evolve(base, repeats=1)
        elif traffic.repeatable:
            yield evolve(base, repeats=4)
        return
    if not traffic.along_r or traffic.scans:
        return
    rows, columns = max(ex.hint(x_tile.numel), 1), max(ex.hint(r_tile.numel), 1)
    if r_tile.numel.is_int:
        if not base.persistent and next_power_of_two(columns) <= device.tuning.persistent_elements:
            yield options.persistent(rows, next_power_of_two(columns), traffic, device)
        if not base.pieces and options.fits_pieces(columns, traffic, device):
            yield options.in_pieces(columns, traffic)
    if (base.persistent or base.pieces) and columns >= _WORTH_A_LOOP:
        yield options.looped(rows, columns, traffic, device)


def _neighbours(space: tiling.Space, traffic: Traffic, device: Device, config: Hashable) -> list[Config]:
    """Twice and half of each knob that is free."""
    if not isinstance(config, Config):
        return []
    found = [evolve(config, num_warps=warps) for warps in (config.num_warps * 2, config.num_warps // 2)]
    if config.pieces:
        # A piece is as long as its threads take at one time.
        vector = config.blocks["r"] // (32 * config.num_warps)
        found = [evolve(other, blocks={**other.blocks, "r": 32 * other.num_warps * vector}) for other in found]
    for prefix, size in config.blocks.items():
        is_row = prefix == "r" and (config.persistent or config.pieces)
        if not is_row and not (config.pieces and prefix == "x"):
            found += [evolve(config, blocks={**config.blocks, prefix: other}) for other in (size * 2, size // 2)]
    if len(config.blocks) == 1 and config.repeats == 1:
        # A larger block for as many threads more.
        found.append(evolve(config, blocks={"x": config.blocks["x"] * 2}, num_warps=config.num_warps * 2))
    return [other for other in found if _fits(space, traffic, device, other)]


def _fits(space: tiling.Space, traffic: Traffic, device: Device, config: Hashable) -> bool:
    """Whether a configuration can be that of a kernel over ``space``."""
    if not isinstance(config, Config) or set(config.blocks) != {tile.prefix for tile in space.tiles}:
        return False
    sizes, warps = config.blocks, config.num_warps
    if any(size < 1 or size & (size - 1) for size in (*sizes.values(), warps)) or warps > _MOST_WARPS:
        return False
    elements = 1
    for size in sizes.values():
        elements *= size
    if not _LEAST_EACH * 32 * warps <= max(elements, 32) <= _MOST_EACH * 32 * warps:
        return False
    if config.repeats > 1 and not traffic.repeatable:
        return False
    for tile in space.tiles:
        size, is_row = sizes[tile.prefix], tile.prefix == "r"
        length = ex.hint(tile.numel)
        if is_row and (config.persistent or config.pieces) and not tile.numel.is_int:
            return False
        if is_row and config.persistent:
            if size != next_power_of_two(length):
                return False
        elif size > _LONGEST_SIDE or size > next_power_of_two(length):
            return False
    if config.pieces:
        return sizes["x"] == 1 and options.fits_pieces(ex.hint(space.tiles[1].numel), traffic, device)
    return True


def _asked(body: KernelBody, space: tiling.Space, traffic: Traffic) -> str:
    """What decides which configuration is fastest, with sizes in buckets."""
    tiles = [(tile.prefix, bucket(ex.hint(tile.numel)), tile.numel.is_int) for tile in space.tiles]
    work = " ".join(f"{node.op}.{node.dtype}" for node in operations(body))
    dtypes = [str(buffer.layout.dtype) for buffer in body.buffers]
    rough = evolve(traffic, written=bucket(traffic.written), segment=bucket(traffic.segment))
    return f"{tiles} {work} {dtypes} {rough}"
