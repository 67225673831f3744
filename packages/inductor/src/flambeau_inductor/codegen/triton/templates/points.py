"""The epilogue of a product as a function of its own: what is done to one block of sums.

In: a kernel over two axes, rows and columns, whose statements read the sum at their point. Out: a Triton function that is given a block of sums and where
it lies. Blocks go beyond the last row or column where sizes are no multiples of theirs: nothing is read or written there.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .... import kernel_ir as kir
from ....expr import walk as parts_of
from ....ir.kernel import SECOND_SUM, SUM, KernelBody, Store
from ....ir.scalar import expressions, indirect_scalars, walk
from ....kernel_ir import Kernel, Variable, position
from ...errors import UnsupportedKernel
from ...tiling import Space, Tile
from ..function import Function
from ..numbers import scalar_names, scalar_variables
from ..options import Config
from ..passes import Plan
from ..print import Printer
from ..statements import Statements
from ..values import Emitter

_BLOCK: kir.Tiles = frozenset({"y", "x"})
_INT32 = 2**31 - 1
#: What the function is given before pointers: the block of sums, the number of its first row among those of all batches, how many rows from there
#: on its batch has, and its first column. Rows that do not follow each other are given one by one, with which of them exist.
_SUMS, _ROW, _ROWS, _COLUMN = (
    Variable("sums", _BLOCK, torch.float32),
    position("row"),
    position("rows"),
    position("column"),
)
#: What comes behind the block of sums where there are two right operands.
_SECOND = Variable("others", _BLOCK, torch.float32)
_LISTED, _EXISTS = position("yi", "y"), Variable("ymask", frozenset({"y"}), torch.bool)


class Points:
    """``uneven`` are the tiles ("y", "x") whose blocks go beyond the end; ``sides`` the sides of a block by tile; ``listed`` says that rows
    are given one by one, ``two`` that there are two blocks of sums."""

    def __init__(
        self,
        body: KernelBody,
        uneven: Iterable[str],
        sides: tuple[tuple[str, int], ...],
        *,
        listed: bool = False,
        two: bool = False,
    ) -> None:
        if len({buffer.storage for buffer in body.buffers}) < len(body.buffers):
            raise UnsupportedKernel("an epilogue over memory that it shares")
        self.body = body
        self.dtypes = {buffer.name: buffer.layout.dtype for buffer in body.buffers}
        stored = {statement.buffer for statement in body.statements if isinstance(statement, Store)}
        #: Buffer -> the parameter that points to it.
        self.pointers = {
            name: f"{'out' if name in stored else 'in'}{number}" for number, name in enumerate(self.dtypes)
        }
        #: What is known at run time only -> the parameter that holds it.
        self.scalars = scalar_names(body)
        self._masks = {
            prefix: Variable(f"{prefix}mask", frozenset({prefix}), torch.bool) for prefix in "yx" if prefix in uneven
        }
        if listed:
            self._masks["y"] = _EXISTS
        sums = (_SUMS, _SECOND) if two else (_SUMS,)
        self._given = (*sums, *((_LISTED, _EXISTS, _COLUMN) if listed else (_ROW, _ROWS, _COLUMN)))
        self._listed = listed
        #: The function in the kernel IR.
        self.kernel = self._kernel(sides)
        printer = Printer(self.kernel.tiles, self.kernel.index_bits)
        parameters = (
            *(part.name for part in self._given),
            *self.arguments,
            "YBLOCK: tl.constexpr",
            "XBLOCK: tl.constexpr",
        )
        #: The same as text; its last parameters are the sides of the block.
        self.function = Function(parameters, tuple(printer.lines(self.kernel.body)))
        #: The support functions that it calls, and whether it may report an index that is out of range.
        self.helpers, self.asserts = printer.helpers, printer.asserts

    @property
    def looks_up(self) -> bool:
        """Whether it reads at positions that it reads before: Triton 3.9 has no loop over terms read ahead that is one loop with such."""
        return any(indirect_scalars(node) for statement in self.body.statements for node in walk(statement.value))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The parameters that whoever launches the kernel gives: pointers, then numbers."""
        return *self.pointers.values(), *self.scalars.values()

    def _kernel(self, sides: tuple[tuple[str, int], ...]) -> Kernel:
        body = self.body
        space = Space(tuple(Tile(prefix, axis.symbol, axis.size) for prefix, axis in zip("yx", body.outer)), {})
        places = {tile.symbol: tile.prefix for tile in space.tiles}
        pointers = {name: kir.Pointer(pointer, self.dtypes[name]) for name, pointer in self.pointers.items()}
        emitter = Emitter(space, places, pointers, self.scalars, dict(self._masks), lambda node: "")
        emitter.reduced |= {SUM: _SUMS, SECOND_SUM: _SECOND}
        # A program has few warps for very many results: what is done to each of them is time in which the units for matrices are idle.
        emitter.rough = all(_keeps_16_bits(self.dtypes[s.buffer]) for s in body.statements if isinstance(s, Store))
        straight = Plan((0,) * len(body.statements), {})
        statements = Statements(body, space, straight, Config(dict(sides), 1), (), self.dtypes, False, emitter)
        for statement in body.statements:
            assert isinstance(statement, Store)
            statements.store(statement)
        return Kernel(
            ("y", "x"),
            32 if _fits_32_bits(body) else 64,
            tuple(pointers.values()),
            (*self._given, *scalar_variables(body)),
            sides,
            (*self._opening(), *emitter.scopes[0].body),
            called=True,
        )

    def _opening(self) -> list[kir.Statement]:
        """The positions of the block's elements, and which of them exist: a row of its batch, a column."""
        within, row, column = position("within", "y"), position("yi", "y"), position("xi", "x")
        found: list[kir.Statement] = []
        if not self._listed:
            found.append(kir.Assign((within,), kir.Lanes("y", "y" not in self._masks)))
            found.append(kir.Assign((row,), kir.total(kir.AsIndex(_ROW), within)))
        lanes = kir.Lanes("x", "x" not in self._masks)
        found.append(kir.Assign((column,), kir.total(kir.AsIndex(_COLUMN), lanes)))
        if "y" in self._masks and not self._listed:
            found.append(kir.Assign((self._masks["y"],), kir.InRange("y", within, _ROWS)))
        if "x" in self._masks:
            end = kir.Number(int(self.body.outer[1].size))
            found.append(kir.Assign((self._masks["x"],), kir.InRange("x", column, end)))
        return found


def _keeps_16_bits(dtype: torch.dtype) -> bool:
    return dtype.itemsize <= 2 and dtype is not torch.bool


def _fits_32_bits(body: KernelBody) -> bool:
    found = [n for s in body.statements for v in (s.value,) for e in walk(v) for n in expressions(e)]
    found += [statement.index for statement in body.statements if isinstance(statement, Store)]
    rows, columns = (axis.size for axis in body.outer)
    return all(part.lo > -_INT32 and part.hi < _INT32 for e in (*found, rows * columns) for part in parts_of(e))
