"""The epilogue of a product as a function of its own: what is done to one block of sums.

In: a kernel over two axes, rows and columns, whose statements read the sum at their point. Out: a Triton function that is given a block of sums and where
it lies. Blocks go beyond the last row or column where sizes are no multiples of theirs: nothing is read or written there.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .... import expr as ex
from ....ir.kernel import SUM, KernelBody, Store
from ....ir.scalar import expressions, walk
from ...tiling import Space, Tile
from ..errors import UnsupportedKernel
from ..function import Function
from ..options import Config
from ..passes import Plan
from ..statements import Statements
from ..values import Dims, Emitter, Value

_BLOCK: Dims = frozenset({"y", "x"})
_INT32 = 2**31 - 1
#: What the function is given before pointers: the block of sums, the number of its first row among those of all batches, how many rows from there
#: on its batch has, and its first column.
GIVEN = ("sums", "row", "rows", "column")


class Points:
    """``uneven`` are the tiles ("y", "x") whose blocks go beyond the end."""

    def __init__(self, body: KernelBody, uneven: Iterable[str]) -> None:
        if body.scalars:
            raise UnsupportedKernel("an epilogue that takes numbers known at run time")
        self.body = body
        dtypes = {buffer.name: buffer.layout.dtype for buffer in body.buffers}
        storages = dict.fromkeys(buffer.storage for buffer in body.buffers)
        if len(storages) < len(body.buffers):
            raise UnsupportedKernel("an epilogue over memory that it shares")
        stored = {statement.buffer for statement in body.statements if isinstance(statement, Store)}
        #: Buffer -> the parameter that points to it.
        self.pointers = {name: f"{'out' if name in stored else 'in'}{number}" for number, name in enumerate(dtypes)}
        self.dtypes = dtypes
        self.wide = not _fits_32_bits(body)
        space = Space(tuple(Tile(prefix, axis.symbol, axis.size) for prefix, axis in zip("yx", body.outer)), {})
        masks = {prefix: f"{prefix}mask" for prefix in "yx" if prefix in uneven}
        places = {tile.symbol: tile.prefix for tile in space.tiles}
        bits = 64 if self.wide else 32
        self.emitter = Emitter(space, places, self.pointers, {}, masks, bits, lambda node: "")
        self.emitter.reduced[SUM] = Value(GIVEN[0], _BLOCK, torch.float32)
        config = Config({"y": 1, "x": 1}, 1)
        straight = Plan((0,) * len(body.statements), {})
        statements = Statements(body, space, straight, config, (), dtypes, bits, False, self.emitter)
        for statement in body.statements:
            assert isinstance(statement, Store)
            statements.store(statement)
        statements.flush()

    @property
    def function(self) -> Function:
        """The function; its last parameters are the sides of the block."""
        wide = ".to(tl.int64)" if self.wide else ""
        columns = int(self.body.outer[1].size)
        lines = [
            f"yi = row{wide} + tl.arange(0, YBLOCK)[:, None]",
            f"xi = column{wide} + tl.arange(0, XBLOCK)[None, :]",
        ]
        if "y" in self.emitter.masks:
            lines.append("ymask = tl.arange(0, YBLOCK)[:, None] < rows")
        if "x" in self.emitter.masks:
            lines.append(f"xmask = xi < {columns}")
        parameters = (*GIVEN, *self.pointers.values(), "YBLOCK: tl.constexpr", "XBLOCK: tl.constexpr")
        return Function(parameters, (*lines, *self.emitter.scopes[0].lines))


def _fits_32_bits(body: KernelBody) -> bool:
    found = [n for s in body.statements for v in (s.value,) for e in walk(v) for n in expressions(e)]
    found += [statement.index for statement in body.statements if isinstance(statement, Store)]
    rows, columns = (axis.size for axis in body.outer)
    return all(part.lo > -_INT32 and part.hi < _INT32 for e in (*found, rows * columns) for part in ex.walk(e))
