"""The statements of one kernel as lines: what every form of it (straight, pieces, looped) writes with.

In: a body whose tiles, plan and configuration are chosen, and the emitter of its lines. Out: stores in that emitter, now or when what
they overwrite has been read.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import define, evolve, field

from ...expr import ONE
from ...ir.kernel import KernelBody, Statement, Store
from ...ops.dtypes import HALVES
from .. import tiling
from .errors import UnsupportedKernel
from .ops import Operation, op_text
from .options import Config
from .passes import Plan
from .values import NO_DIMS, Dims, Emitter, Value


@define(eq=False)
class Statements:
    """``stage`` is the walk over the row that is being written. ``serial``: one program takes the points in turn."""

    body: KernelBody
    space: tiling.Space
    plan: Plan
    config: Config
    segments: tuple[tiling.Segments, ...]
    dtypes: Mapping[str, torch.dtype]
    index_bits: int
    serial: bool
    emitter: Emitter
    stage: int = 0
    _deferred: list[tuple[str, Dims]] = field(factory=list)

    def begin(self, stage: int) -> list[Statement]:
        """Enter ``stage``: its statements."""
        self.stage = stage
        return [s for s, at in zip(self.body.statements, self.plan.stages, strict=True) if at == stage]

    def range(self, prefix: str) -> str:
        """``arange`` over a tile, laid along its dimension of the block."""
        text = f"tl.arange(0, {prefix.upper()}BLOCK)"
        if len(self.space.tiles) == 1:
            return text
        return text + ("[:, None]" if self.space.tiles[0].prefix == prefix else "[None, :]")

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
        dims: Dims = frozenset(level)
        value = emitter.convert(emitter.emit(statement.value), self.dtypes[statement.buffer])
        offset, have = emitter.index(statement.index)
        if have != dims:
            text = f"tl.full([], {offset}, tl.int32)" if statement.index.is_int else f"({offset})"
            offset = emitter.broadcast(text, have, dims)
        pointer = f"{self.emitter.pointers[statement.buffer]} + ({offset})"
        mask = emitter.tile_mask(dims)
        if statement.mode == "set":
            arguments = [pointer, value.text, mask, "cache_modifier='.cs'" if self.config.streamed else ""]
            text = f"tl.store({', '.join(filter(None, arguments))})"
            emitter.stored[(statement.buffer, statement.index)] = value
        else:
            text = self._atomic(statement, pointer, value, dims, mask)
        if any(statement is self.body.statements[number] for number in self.plan.deferred):
            self._deferred.append((text, dims))
        else:
            emitter.line(text, dims if dims else NO_DIMS)

    def flush(self) -> None:
        """Write the stores that waited for reads of what they overwrite."""
        for text, dims in self._deferred:
            self.emitter.line(text, dims)
        self._deferred.clear()

    def _atomic(self, statement: Store, pointer: str, value: Value, dims: Dims, mask: str) -> str:
        whole = self.emitter.broadcast(value.text, value.dims, dims)
        if not self.serial:
            mask = f", mask={mask}" if mask else ""
            return f"tl.atomic_{statement.mode}({pointer}, {whole}{mask}, sem='relaxed')"
        before = self.emitter.define(f"tl.load({pointer}{', ' + mask if mask else ''})", dims, value.dtype)
        name = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}[statement.mode]
        dtype = torch.float32 if value.dtype in HALVES else value.dtype
        parts = [self.emitter.convert(v, dtype) for v in (before, evolve(value, text=whole, dims=dims))]
        if dtype is torch.bool:
            combined = f"({parts[0].text} {'|' if name in ('add', 'maximum') else '&'} {parts[1].text})"
        else:
            combined = op_text(Operation(name, [v.text for v in parts], [dtype, dtype], dtype, self.emitter.need))
        result = self.emitter.convert(self.emitter.define(combined, dims, dtype), value.dtype)
        return f"tl.store({pointer}, {result.text}{', ' + mask if mask else ''})"
