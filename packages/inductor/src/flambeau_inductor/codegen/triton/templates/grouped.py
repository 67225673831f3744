"""Grouped matrix products (experts of a mixture) with their epilogues as Triton kernels.

In: a ``Gemm`` with offsets, which are in the device's memory. Out: a kernel. Programs take tiles of results in turn, as many as run at once, so that the launch does
not depend on how rows are distributed. Each program reads the offsets once: how many tiles of rows a group has, and how many come before it. The group of a tile is the
first one that ends behind it. A tile has rows of one group only; those beyond the group's end are computed and not stored.

Where there is a second right operand, a block of columns is one half of each, so that both are one product: the hardware fetches the two halves as one box. Two products in one loop reached
two thirds of one's speed on an H200; how fast the joined halves are is not measured. Of one product `autotune/choice.py` has the figures.

Rows behind the last offset are a group of their own, whose sums are 0: what follows the product may still say something of them. Offsets that would lead out of memory
count as the nearest that do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from flambeau_runtime.triton_kernels import ALIGNED, WAIT

from .... import expr as ex
from ....devices import device_facts
from ....ir.kernel import Computed, Gemm
from ....ir.layout import Ref
from ...cpp.canonical import canonical
from ...kernel import GeneratedKernel
from ..function import PROGRAM
from ..helpers import NEAREST_TF32
from .assemble import indented, kernel_of
from .gemm import Side, resident
from .points import Points
from .windows import ALIGNMENT

#: Tiles of rows that are done together, so that the columns they share are still in the cache.
_ACROSS = 8
#: Columns from which on a block is finished in two halves: whole it would need more registers than there are.
_HALVED = 256


def grouped_kernel(gemm: Gemm) -> GeneratedKernel:
    """The kernel of one grouped product. Raises UnsupportedKernel where its epilogue holds what Triton cannot express."""
    return _Writer(gemm).kernel()


class _Writer:
    def __init__(self, gemm: Gemm) -> None:
        assert isinstance(gemm.left, Ref) and not isinstance(gemm.right, Computed) and gemm.offsets is not None
        self.gemm, self.tile, self.offsets = gemm, gemm.tile, gemm.offsets
        body, self.buffers = canonical(gemm.body)
        self.groups, self.terms, self.columns = (int(size) for size in gemm.right.sizes)
        self.groups += len(gemm.further)
        self.rows = gemm.left.sizes[1]
        tile, self.is_paired = self.tile, gemm.second is not None
        #: Columns of the result that a tile has: half of those of its block where there are two right operands.
        self.width = tile.columns // 2 if self.is_paired else tile.columns
        self.is_halved = self.is_paired or self.width >= _HALVED
        uneven = ["y", *(["x"] if self.columns % self.width else [])]
        side = tile.columns // 2 if self.is_halved else self.width
        self.points = Points(body, uneven, (("y", tile.rows), ("x", side)), two=self.is_paired)
        self.left = Side("left", gemm.left, 1, (tile.rows, tile.terms), tile.fetched)
        self.right = Side("right", gemm.right, 2, (tile.columns, tile.terms), tile.fetched)
        #: How far second operands lie behind the first ones.
        self.behind = 0 if gemm.second is None else int(gemm.second.offset) - int(gemm.right.offset)
        self.sides = (self.left, self.right)
        #: Where matrices lie apart, a tile finds that of its group first.
        self.is_apart = bool(gemm.further)
        self.column_tiles = -(-self.columns // self.width)
        #: Whether operands have more bits than the units for matrices take.
        self.rounds = gemm.left.dtype is torch.float32
        facts = device_facts(gemm.device)
        most = facts.multiprocessors * resident(tile, gemm.left.dtype, facts)
        # Each group, and the rows behind all of them, may end with a tile that is not full.
        row_tiles = ex.floor_div(self.rows + (tile.rows - 1), ex.Int(tile.rows)) + self.groups
        self.programs = ex.minimum(row_tiles * self.column_tiles, ex.Int(most))

    # -- text ------------------------------------------------------------------------------------------------------------

    def _lines(self, epilogue: str) -> list[str]:
        """The text; ``epilogue`` is the name of the function that finishes a tile."""
        tile = self.tile
        names = self.points.scalars
        rows = ex.render(self.rows, "triton", lambda symbol: names[symbol.name])
        lines = [f"pid = {PROGRAM}", f"count = {rows}" if self.rows.is_int else f"count = ({rows}).to(tl.int32)", WAIT]
        lines += [*self._groups(), *self._open(self.left), *([] if self.is_apart else self._open(self.right))]
        flat = "" if self.points.looks_up else ", flatten=True"
        lines.append(f"for tile in tl.range(pid, row_tiles * {self.column_tiles}, tl.num_programs(0){flat}):")
        inner = [*self._order(), *self._matrix(), f"sums = tl.zeros([YBLOCK, {tile.columns}], tl.float32)"]
        inner.append(f"for step in range(0, {-(-self.terms // tile.terms)}):")
        precision = ", input_precision='tf32'" if self.rounds else ""
        steps = ["term = step * KBLOCK", *(line for side in self.sides for line in self._load(side))]
        if self.rounds:
            steps += [f"{side.name}_block = {NEAREST_TF32}({side.name}_block)" for side in self.sides]
        steps.append(f"sums = tl.dot(left_block, right_block, sums{precision})")
        inner += [*indented(steps), f"sums = tl.where(group < {self.groups}, sums, 0.0)"]
        return [*lines, *indented([*inner, *self._finish(epilogue)])]

    def _groups(self) -> list[str]:
        """Where groups begin and end, and how many tiles of rows are done with each."""
        count, step = self.groups, int(self.offsets.strides[0])
        block = 1 << count.bit_length()
        start = f"offsets + {int(self.offsets.offset)}" if int(self.offsets.offset) else "offsets"
        return [
            f"groups = tl.arange(0, {block})",
            f"ends = tl.load({start} + groups * {step}, mask=groups < {count}, other=0)",
            f"starts = tl.load({start} + (groups - 1) * {step}, mask=(groups > 0) & (groups <= {count}), other=0)",
            "starts = tl.minimum(tl.maximum(starts, 0), count)",
            f"ends = tl.where(groups == {count}, count, tl.minimum(tl.maximum(ends, 0), count))",
            "tiles = (tl.maximum(ends - starts, 0) + (YBLOCK - 1)) // YBLOCK",
            "done = tl.cumsum(tiles, 0)",
            "row_tiles = tl.sum(tiles, 0)",
        ]

    def _order(self) -> list[str]:
        """Where the program's next tile lies: some tiles of rows after the others, within them down the rows first."""
        across = f"{_ACROSS * self.column_tiles}"
        return [
            f"height = tl.minimum(row_tiles - tile // {across} * {_ACROSS}, {_ACROSS})",
            f"within = tile % {across}",
            f"turn = tile // {across} * {_ACROSS} + within % height",
            f"column = within // height * {self.width}",
            "group = tl.sum((done <= turn).to(tl.int32), 0)",
            "here = groups == group",
            "end = tl.sum(tl.where(here, ends, 0), 0)",
            "row = tl.sum(tl.where(here, starts + (turn - done + tiles) * YBLOCK, 0), 0)",
        ]

    def _matrix(self) -> list[str]:
        """The matrix of a tile's group, where matrices lie apart."""
        if not self.is_apart:
            return []
        lines = [f"matrix = {_start('right', self.right.ref)}"]
        for number, ref in enumerate(self.gemm.further, 1):
            lines.append(f"matrix = tl.where(group == {number}, {_start(f'right{number}', ref)}, matrix)")
        # Of rows behind the last group any matrix will do.
        return [*lines, *self._open(self.right)]

    def _base(self, side: Side) -> str:
        """The pointer to an operand's first element."""
        return "matrix" if side is self.right and self.is_apart else _start(side.name, side.ref)

    def _is_fetched(self, side: Side) -> bool:
        return side.is_fetched and self.behind * side.ref.dtype.itemsize % ALIGNMENT == 0

    def _open(self, side: Side) -> list[str]:
        """The descriptor of an operand."""
        if not self._is_fetched(side):
            return []
        (batch, results, terms), (_, size, count) = side.steps, side.sizes
        if side is self.left:
            along: list[tuple[Any, int, int]] = [("count", results, side.block[0])]
        else:
            along = [*([(2, self.behind, 2)] if self.is_paired else []), (size, results, self.width)]
        across = [(count, terms, side.block[1])]
        order = [*along, *across] if side.by_terms else [*across, *along]
        if side is not self.left and not self.is_apart:
            order = [(self.groups, batch, 1), *order]
        shape, strides, block = (list(part) for part in zip(*order, strict=True))
        text = f"tl.make_tensor_descriptor({self._base(side)}, [{_listed(shape)}], {strides}, {block})"
        return [f"if {ALIGNED}:", f"    {side.name}_at = {text}"]

    def _load(self, side: Side) -> list[str]:
        """One block of an operand: rows by terms of the left one, terms by columns of the right one."""
        by_address = self._by_address(side)
        if not self._is_fetched(side):
            return by_address
        is_left = side is self.left
        start = ["row"] if is_left else [*(["0"] if self.is_paired else []), "column"]
        at = [*start, "term"] if side.by_terms else ["term", *start]
        sides = side.block if side.by_terms else side.block[::-1]
        at = at if is_left or self.is_apart else [self._group, *at]
        text = f"{side.name}_at.load([{_listed(at)}])"
        text += f".reshape({_listed(sides)})" if len(at) > 2 else ""
        text += ".T" if side.by_terms is not is_left else ""
        return [f"if {ALIGNED}:", f"    {side.name}_block = {text}", "else:", *indented(by_address)]

    @property
    def _group(self) -> str:
        """The group whose matrix a tile reads: rows behind the last offset read that of the last."""
        return f"tl.minimum(group, {self.groups - 1})"

    def _by_address(self, side: Side) -> list[str]:
        """The same element by element: results beyond the end are the last ones again, terms beyond it are zero."""
        is_left = side is self.left
        (batch, results, terms), (_, size, count) = side.steps, side.sizes
        along, across = ("[:, None]", "[None, :]") if is_left else ("[None, :]", "[:, None]")
        lines = [] if is_left else [f"lane = tl.arange(0, {side.block[0]})"]
        places = "row + tl.arange(0, YBLOCK)" if is_left else f"column + lane % {self.width}"
        if is_left:
            places = f"tl.minimum({places}, count - 1)"
        elif size % self.width:
            places = f"tl.minimum({places}, {size - 1})"
        start = self._base(side)
        if not is_left and not self.is_apart:
            start += f" + {self._group}.to(tl.int64) * {batch}"
        mask = f", mask=places < {count}, other=0.0" if count % side.block[1] else ""
        place = f"results * {results} + places * {terms}"
        if self.is_paired and not is_left:
            place += f" + (lane // {self.width}){along}.to(tl.int64) * {self.behind}"
        return [
            *lines,
            f"results = ({places}){along}.to(tl.int64)",
            f"places = (term + tl.arange(0, KBLOCK)){across}",
            f"{side.name}_block = tl.load({start} + ({place}){mask})",
        ]

    def _finish(self, epilogue: str) -> list[str]:
        """The epilogue of the tile: of two halves, where its columns are those of two operands or many."""
        pointers = "".join(f", {name}" for name in self.points.arguments)

        def text(sums: str, column: str, width: int) -> str:
            return f"{epilogue}({sums}, row, end - row, {column}{pointers}, YBLOCK, {width})"

        if not self.is_halved:
            return [text("sums", "column", self.width)]
        half = self.tile.columns // 2
        split = [
            f"halves = tl.permute(tl.reshape(sums, [YBLOCK, 2, {half}]), [0, 2, 1])",
            "first, second = tl.split(halves)",
        ]
        if self.is_paired:
            return [*split, text("first, second", "column", half)]
        return [*split, text("first", "column", half), text("second", f"column + {half}", half)]

    def kernel(self) -> GeneratedKernel:
        """The function of the epilogue, and the one that is launched."""
        constants = {"YBLOCK": self.tile.rows, "KBLOCK": self.tile.terms, ALIGNED: True}
        return kernel_of(
            self.gemm,
            self.points,
            self.buffers,
            self._lines,
            constants,
            self.programs,
            [NEAREST_TF32] if self.rounds else [],
        )


def _start(name: str, ref: Ref) -> str:
    """The pointer to the first element of what is read by it."""
    return f"{name} + {int(ref.offset)}" if int(ref.offset) else name


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values))
