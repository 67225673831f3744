"""The statements of one kernel in the kernel IR: what every form of it (straight, pieces, looped) writes with.

In: a body whose tiles, plan and configuration are chosen, and the emitter of its values. Out: stores in that emitter, now or when what
they overwrite has been read.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import define, field

from ... import kernel_ir as kir
from ...expr import ONE
from ...ir.kernel import KernelBody, Statement, Store
from ...kernel_ir import Node, Tiles, Variable
from ...ops.dtypes import HALVES
from .. import tiling
from ..errors import UnsupportedKernel
from .options import Config
from .passes import Plan
from .values import Emitter


@define(eq=False)
class Statements:
    """``stage`` is the walk over the row that is being written. ``serial``: one program takes the points in turn."""

    body: KernelBody
    space: tiling.Space
    plan: Plan
    config: Config
    segments: tuple[tiling.Segments, ...]
    dtypes: Mapping[str, torch.dtype]
    serial: bool
    emitter: Emitter
    stage: int = 0
    _deferred: list[tuple[kir.Statement, Tiles]] = field(factory=list)

    def begin(self, stage: int) -> list[Statement]:
        """Enter ``stage``: its statements."""
        self.stage = stage
        return [s for s, at in zip(self.body.statements, self.plan.stages, strict=True) if at == stage]

    def lanes(self, prefix: str) -> kir.Lanes:
        """The lanes of a block along a tile, laid along its dimension."""
        return kir.Lanes(prefix, prefix not in self.emitter.masks)

    def row_lanes(self) -> Node:
        """Those of the row, as wide as positions are."""
        return kir.AsIndex(self.lanes("r"))

    def check_scan(self) -> None:
        """Refuse a scan whose running value would start anew inside the row."""
        if sum(axis.size is not ONE for axis in self.body.inner) > 1:
            raise UnsupportedKernel("a scan inside a space of several axes")

    def store(self, statement: Store) -> None:
        """Write one store, or keep it until ``flush``."""
        emitter = self.emitter
        level = {tile.prefix for tile in self.space.tiles}
        if statement.level == "outer" and self.space.tile("r") is not None:
            level.discard("r")
        tiles: Tiles = frozenset(level)
        value = emitter.convert(emitter.emit(statement.value), self.dtypes[statement.buffer])
        index = emitter.broadcast(emitter.index(statement.index), tiles)
        pointer = emitter.pointers[statement.buffer]
        mask = kir.all_of(emitter.tile_masks(tiles))
        if statement.mode == "set":
            written: kir.Statement = kir.Store(pointer, index, value, mask, self.config.streamed)
            emitter.stored[(statement.buffer, statement.index)] = value
        elif self.serial:
            written = kir.Store(pointer, index, self._combined(statement.mode, pointer, index, value, mask), mask)
        else:
            written = kir.Atomic(statement.mode, pointer, index, emitter.broadcast(value, tiles), mask)
        if any(statement is self.body.statements[number] for number in self.plan.deferred):
            self._deferred.append((written, tiles))
        else:
            emitter.add(written, tiles)

    def flush(self) -> None:
        """Write the stores that waited for reads of what they overwrite."""
        for written, tiles in self._deferred:
            self.emitter.add(written, tiles)
        self._deferred.clear()

    def _combined(self, mode: str, pointer: kir.Pointer, index: Node, value: Variable, mask: Node | None) -> Variable:
        """What is there combined with ``value``, by the one program that takes the points in turn."""
        emitter, tiles = self.emitter, index.tiles
        before = emitter.define(kir.Load(pointer, index, mask))
        name = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}[mode]
        dtype = torch.float32 if value.dtype in HALVES else value.dtype
        whole = emitter.broadcast(value, tiles)
        if value.dtype is not dtype:
            before = emitter.convert(before, dtype)
            whole = emitter.define(kir.Op("to_dtype", (whole,), dtype, tiles))
        if dtype is torch.bool:
            name = "logical_or" if name in ("add", "maximum") else "logical_and"
        result = emitter.define(kir.Op(name, (before, whole), dtype, tiles))
        return emitter.convert(result, value.dtype)
