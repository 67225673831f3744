"""Grouped matrix products (experts of a mixture) with their epilogues as Triton kernels.

In: a ``Gemm`` with offsets, which are in the device's memory. Out: a kernel. Programs take tiles of results in turn, as many as run at once, so that the launch does
not depend on how rows are distributed. Each program reads the offsets once: how many tiles of rows a group has, and how many come before it. The group of a tile is the
first one that ends behind it. A tile has rows of one group only; those beyond the group's end are computed and not stored.

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
        #: Columns of each block of sums: those of the tile, or half of them where there are two blocks.
        rights = [("right", gemm.right), *([("second", gemm.second)] if gemm.second is not None else [])]
        tile, self.width = self.tile, self.tile.columns // len(rights)
        self.is_halved = len(rights) == 1 and self.width >= _HALVED
        side = self.width // 2 if self.is_halved else self.width
        uneven = ["y", *(["x"] if self.columns % self.width else [])]
        self.points = Points(body, uneven, (("y", tile.rows), ("x", side)), two=len(rights) == 2)
        self.left = Side("left", gemm.left, 1, (tile.rows, tile.terms), tile.fetched)
        self.rights = [Side(name, ref, 2, (self.width, tile.terms), tile.fetched) for name, ref in rights]
        self.sides = [self.left, *self.rights]
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
        opened = [side for side in self.sides if side is self.left or not self.is_apart]
        lines += [*self._groups(), *(line for side in opened for line in self._open(side))]
        flat = "" if self.points.looks_up else ", flatten=True"
        lines.append(f"for tile in tl.range(pid, row_tiles * {self.column_tiles}, tl.num_programs(0){flat}):")
        sums = ["sums", "others"][: len(self.rights)]
        inner = [
            *self._order(),
            *self._matrix(),
            *(f"{name} = tl.zeros([YBLOCK, {self.width}], tl.float32)" for name in sums),
        ]
        inner.append(f"for step in range(0, {-(-self.terms // tile.terms)}):")
        precision = ", input_precision='tf32'" if self.rounds else ""
        steps = ["term = step * KBLOCK", *(line for side in self.sides for line in self._load(side))]
        if self.rounds:
            steps += [f"{side.name}_block = {NEAREST_TF32}({side.name}_block)" for side in self.sides]
        for name, side in zip(sums, self.rights, strict=True):
            steps.append(f"{name} = tl.dot(left_block, {side.name}_block, {name}{precision})")
        inner += indented(steps)
        inner += [f"{name} = tl.where(group < {self.groups}, {name}, 0.0)" for name in sums]
        return [*lines, *indented([*inner, *self._finish(epilogue, sums)])]

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
        """The matrix of a tile's group, where matrices lie apart; those of second operands lie as far behind it."""
        if not self.is_apart:
            return []
        lines = [f"matrix = {_start('right', self.rights[0].ref)}"]
        for number, ref in enumerate(self.gemm.further, 1):
            lines.append(f"matrix = tl.where(group == {number}, {_start(f'right{number}', ref)}, matrix)")
        # Of rows behind the last group any matrix will do.
        return [*lines, *(line for side in self.rights for line in self._open(side))]

    def _base(self, side: Side) -> str:
        """The pointer to an operand's first element."""
        if side is self.left or not self.is_apart:
            return _start(side.name, side.ref)
        behind = int(side.ref.offset) - int(self.rights[0].ref.offset)
        return f"(matrix + {behind})" if behind else "matrix"

    def _open(self, side: Side) -> list[str]:
        """The descriptor of an operand."""
        if not side.is_fetched:
            return []
        (batch, results, terms), (_, size, count) = side.steps, side.sizes
        order: list[tuple[Any, int, int]] = [
            ("count" if side is self.left else size, results, side.block[0]),
            (count, terms, side.block[1]),
        ]
        order = order if side.by_terms else order[::-1]
        if side is not self.left and not self.is_apart:
            order = [(self.groups, batch, 1), *order]
        shape, strides, block = (list(part) for part in zip(*order, strict=True))
        text = f"tl.make_tensor_descriptor({self._base(side)}, [{_listed(shape)}], {strides}, {block})"
        return [f"if {ALIGNED}:", f"    {side.name}_at = {text}"]

    def _load(self, side: Side) -> list[str]:
        """One block of an operand: rows by terms of the left one, terms by columns of the right ones."""
        by_address = self._by_address(side)
        if not side.is_fetched:
            return by_address
        is_left = side is self.left
        start = "row" if is_left else "column"
        at = [start, "term"] if side.by_terms else ["term", start]
        sides = side.block if side.by_terms else side.block[::-1]
        is_plain = is_left or self.is_apart
        text = f"{side.name}_at.load([{', '.join(at if is_plain else [self._group, *at])}])"
        text += "" if is_plain else f".reshape({sides[0]}, {sides[1]})"
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
        places = "row + tl.arange(0, YBLOCK)" if is_left else f"column + tl.arange(0, {self.width})"
        if is_left:
            places = f"tl.minimum({places}, count - 1)"
        elif size % side.block[0]:
            places = f"tl.minimum({places}, {size - 1})"
        start = self._base(side)
        if not is_left and not self.is_apart:
            start += f" + {self._group}.to(tl.int64) * {batch}"
        mask = f", mask=places < {count}, other=0.0" if count % side.block[1] else ""
        return [
            f"results = ({places}){along}.to(tl.int64)",
            f"places = (term + tl.arange(0, KBLOCK)){across}",
            f"{side.name}_block = tl.load({start} + (results * {results} + places * {terms}){mask})",
        ]

    def _finish(self, epilogue: str, sums: Sequence[str]) -> list[str]:
        """The epilogue of the tile, in two halves where one block of sums is wide."""
        pointers = "".join(f", {name}" for name in self.points.arguments)

        def text(sums: str, column: str, width: int) -> str:
            return f"{epilogue}({sums}, row, end - row, {column}{pointers}, YBLOCK, {width})"

        if not self.is_halved:
            return [text(", ".join(sums), "column", self.width)]
        half = self.width // 2
        return [
            f"halves = tl.permute(tl.reshape(sums, [YBLOCK, 2, {half}]), [0, 2, 1])",
            "first, second_half = tl.split(halves)",
            text("first", "column", half),
            text("second_half", f"column + {half}", half),
        ]

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
