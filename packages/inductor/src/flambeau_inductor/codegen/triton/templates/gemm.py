"""Matrix products and convolutions with their epilogues as Triton kernels.

In: ``Gemm`` steps. Out: kernels. A program takes tiles of results in turn, as many programs as run at once; neighbours share rows of the left operand and
columns of the right one. Operands come in blocks that the hardware fetches (tensor descriptors), where memory lies as that takes: one stride of one
element, starts and other strides multiples of 16 bytes. Else, and where a pointer turns out to start elsewhere, by one address for each element.

Measured on an H200 (float16, bfloat16 and TF32, 4,096 x 4,096 x 4,096 and seven other sizes): 0.75 to 1.14 of the speed of the library's product, without
an epilogue; with addresses 0.6 to 0.8.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import evolve, frozen

from flambeau_runtime.triton_kernels import ALIGNED, WAIT

from .... import expr as ex
from ....devices import Facts, device_facts
from ....ir.kernel import Computed, Gemm, GemmTile, Window
from ....ir.layout import Ref
from ...cpp.canonical import canonical
from ...kernel import GeneratedKernel
from ..function import PROGRAM
from ..helpers import NEAREST_TF32
from .assemble import indented, kernel_of
from .inline import Inline
from .points import Points
from .windows import ALIGNMENT, LONGEST_SIDE, WindowSide

#: Blocks of rows whose tiles are done together, so that the columns they share are still in the cache.
_GROUP = 8
#: Results of a thread from which on a block is finished in two halves: whole it would need more registers, and more shared memory on its way, than there are.
_HALVED = 128
#: The fewest columns of half a tile: narrower ones reach much less of the units for matrices.
_LEAST_HALF = 128
#: Registers of a thread that such a kernel takes.
_REGISTERS = 255
#: Shared memory of a multiprocessor that each program takes for itself.
_RESERVED = 1 << 10
#: Terms of 8 bits after which a sum is added to one in float32, where that is asked for: as many as the library's kernels take together.
_PROMOTED_TERMS = 128
#: Shared memory beside the operands' stages that a convolution takes for its sums on their way to memory, piece by piece (4 KiB by the compiler's count).
_SCRATCH = 8 << 10


@frozen
class Side:
    """An operand: ``outer`` is its dimension of results, of ``size``; ``terms`` the one that is summed over. ``may_fetch``: by the tile. ``is_half``: of the
    columns of a tile."""

    name: str
    ref: Ref
    outer: int
    block: tuple[int, int]
    may_fetch: bool = True
    is_half: bool = False

    @property
    def descriptor(self) -> str:
        """The name of what its blocks are fetched by."""
        return f"{self.name}_half_at" if self.is_half else f"{self.name}_at"

    @property
    def length(self) -> str:
        """How many results a block has, as text."""
        return "YBLOCK" if self.outer == 1 else "XBLOCK // 2" if self.is_half else "XBLOCK"

    @property
    def steps(self) -> tuple[int, int, int]:
        """How far apart batches, results and terms lie."""
        batch, *both = (int(stride) for stride in self.ref.strides)
        return batch, both[self.outer - 1], both[2 - self.outer]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Batches, results (about how many where that is known at run time only), terms."""
        batch, *both = (ex.hint(size) for size in self.ref.sizes)
        return batch, both[self.outer - 1], both[2 - self.outer]

    @property
    def is_open(self) -> bool:
        """Whether the number of results is known at run time only."""
        return not self.ref.sizes[self.outer].is_int

    @property
    def by_terms(self) -> bool:
        """Whether neighbouring terms are neighbours in memory."""
        return self.steps[2] == 1

    @property
    def is_fetched(self) -> bool:
        """Whether the hardware fetches its blocks, given a pointer that is a multiple of 16 bytes."""
        if not self.may_fetch:
            return False
        itemsize = self.ref.dtype.itemsize
        batch, results, terms = self.steps
        others = [results if self.by_terms else terms, *([batch] if self.sizes[0] > 1 else [])]
        starts = [int(self.ref.offset), *others]
        if 1 not in (results, terms) or any(start * itemsize % ALIGNMENT for start in starts) or min(others) <= 0:
            return False
        return max(self.block) <= LONGEST_SIDE and self.block[self.by_terms] * itemsize >= ALIGNMENT


def left_side(left: Ref | Window, tile: GemmTile) -> Side | WindowSide:
    """The left operand in blocks of a tile: a matrix, or what a convolution sees of an image."""
    block = (tile.rows, tile.terms)
    return (
        WindowSide("left", left, block, tile.fetched)
        if isinstance(left, Window)
        else Side("left", left, 1, block, tile.fetched)
    )


def gemm_kernel(gemm: Gemm) -> GeneratedKernel:
    """The kernel of one product. Raises UnsupportedKernel where its epilogue holds what Triton cannot express."""
    return _Writer(gemm).kernel()


class _Writer:
    def __init__(self, gemm: Gemm) -> None:
        self.gemm, self.tile = gemm, gemm.tile
        body, self.buffers = canonical(gemm.body)
        batch, m, k = (ex.hint(size) for size in gemm.left.sizes)
        n = int(gemm.right.sizes[2])
        self.sizes = (batch, m, n, k)
        #: Whether operands have more bits than the units for matrices take.
        self.rounds = gemm.left.dtype is torch.float32
        tile = self.tile
        is_open = not gemm.left.sizes[1].is_int
        uneven = ["y"] if is_open or m % tile.rows else []
        uneven += ["x"] if n % tile.columns else []
        columns = _finished_columns(tile)
        self.left = left_side(gemm.left, tile)
        #: Where the rows of a tile are points of an image that do not follow each other.
        self.boxes = self.left if isinstance(self.left, WindowSide) and self.left.box is not None else None
        self.points = Points(body, uneven, (("y", tile.rows), ("x", columns)), listed=self.boxes is not None)
        computed = gemm.right if isinstance(gemm.right, Computed) else None
        self.inline = computed and Inline(computed, by_columns=False, masked=k % tile.terms > 0)
        source = gemm.right.source if isinstance(gemm.right, Computed) else gemm.right
        self.right = Side("right", source, 2, (tile.columns, tile.terms), tile.fetched and computed is None)
        self.row_tiles = self.left.tiles if isinstance(self.left, WindowSide) else -(-m // tile.rows)
        self.column_tiles = -(-n // tile.columns)
        self.tiles = batch * self.row_tiles * self.column_tiles
        facts = device_facts(gemm.device)
        self.programs = min(self.tiles, facts.multiprocessors * resident(tile, gemm.left.dtype, facts))
        self.extent: ex.Expr | None = None
        #: The numbers of rows, of their tiles and of programs as text.
        self.height, self.high, self.running = str(m), str(self.row_tiles), str(self.programs)
        if is_open:
            most, rows = facts.multiprocessors * resident(tile, gemm.left.dtype, facts), gemm.left.sizes[1]
            tiles = ex.floor_div(rows + (tile.rows - 1), ex.Int(tile.rows)) * self.column_tiles
            self.extent = ex.minimum(tiles, ex.Int(most))
            self.height, self.high, self.running = "height_of_all", "row_tiles", "tl.num_programs(0)"
        if isinstance(self.left, WindowSide):
            # Boxes leave about half of the registers; those by address do one tile each, as where windows begin is kept in registers meanwhile.
            beside = max(1, facts.shared // (_staged_bytes(tile, gemm.left.dtype) + _SCRATCH))
            self.programs = min(self.tiles, facts.multiprocessors * beside) if self.boxes is not None else self.tiles
            self.running = str(self.programs)
        #: Tiles of the last round that are done in halves, and the right operand's blocks for that.
        self.left_over = 0
        if self.extent is None and not isinstance(self.left, WindowSide) and self.inline is None:
            self.left_over = left_over(tile, self.tiles, self.programs)
        self.half = evolve(self.right, block=(tile.columns // 2, tile.terms), is_half=True)

    # -- text ------------------------------------------------------------------------------------------------------------

    def _lines(self, epilogue: str) -> list[str]:
        """The text; ``epilogue`` is the name of the function that finishes a tile."""
        tile = self.tile
        lines = [f"pid = {PROGRAM}"]
        if self.extent is not None:
            names = self.points.scalars
            rows = ex.render(self.gemm.left.sizes[1], "triton", lambda symbol: names[symbol.name])
            lines += [f"height_of_all = ({rows}).to(tl.int32)", f"row_tiles = tl.cdiv(height_of_all, {tile.rows})"]
        lines.append(WAIT)
        opened = (self.left, self.right, *([self.half] if self.left_over else []))
        lines += [line for side in opened for line in self._open(side)]
        # Where windows begin would be asked again for each block of terms if both loops were one, and of boxes the instructions would wait for each other.
        flat = "" if isinstance(self.left, WindowSide) or self.points.looks_up else ", flatten=True"
        whole = self.tiles - self.left_over
        tiles = str(whole) if self.extent is None else f"row_tiles * {self.column_tiles}"
        lines.append(f"for tile in tl.range(pid, {tiles}, {self.running}{flat}):")
        lines += indented(self._tile(self.right, epilogue))
        if self.left_over:
            lines += [f"if pid < {2 * self.left_over}:", f"    tile = {whole} + pid // 2"]
            lines += indented(self._tile(self.half, epilogue))
        return lines

    def _tile(self, right: Side, epilogue: str) -> list[str]:
        """One tile, or that half of it whose turn it is."""
        tile, (*_, k) = self.tile, self.sizes
        inner = [*self._order(), *(self.left.opening() if isinstance(self.left, WindowSide) else [])]
        inner += ["column += pid % 2 * (XBLOCK // 2)"] if right.is_half else []
        inner += self._columns()
        # Triton has the second operand of an instruction read from shared memory, but not the first one where it was reshaped.
        turned = self.boxes is not None
        inner.append(f"sums = tl.zeros([{'XBLOCK, YBLOCK' if turned else f'YBLOCK, {right.length}'}], tl.float32)")
        inner.append(f"for step in range(0, {-(-k // tile.terms)}):")
        steps = ["term = step * KBLOCK", *self._load(self.left), *self._load(right)]
        precision = ", input_precision='tf32'" if self.rounds else ""
        if self.gemm.promotes:
            precision = f", max_num_imprecise_acc={min(_PROMOTED_TERMS, tile.terms)}"
        if self.rounds:
            steps += [f"{side}_block = {NEAREST_TF32}({side}_block)" for side in ("left", "right")]
        operands = "right_block.T, left_block.T" if turned else "left_block, right_block"
        steps.append(f"sums = tl.dot({operands}, sums{precision})")
        return [*inner, *indented(steps), *self._finish(right, epilogue)]

    def _order(self) -> list[str]:
        """Where the program's next tile lies: groups of rows, within them down the rows first."""
        batch = self.sizes[0]
        across = min(_GROUP, self.row_tiles) if self.extent is None else _GROUP
        each = self.row_tiles * self.column_tiles
        lines = ["place = tile"] if batch == 1 else [f"batch = tile // {each}", f"place = tile % {each}"]
        lines += [
            f"group = place // {across * self.column_tiles}",
            f"within = place % {across * self.column_tiles}",
            f"height = tl.minimum({self.high} - group * {across}, {across})",
            f"row = (group * {across} + within % height) * YBLOCK",
            "column = within // height * XBLOCK",
        ]
        return lines

    def _columns(self) -> list[str]:
        """What a block of columns of a computed operand needs once."""
        if not self.inline:
            return []
        size = self.sizes[2]
        columns = "column + tl.arange(0, XBLOCK)"
        lines = [f"columns = tl.minimum({columns}, {size - 1})" if size % self.tile.columns else f"columns = {columns}"]
        lines += ["bi = batch"] if self.sizes[0] > 1 else []
        return [*lines, self.inline.columns, *self.inline.once]

    def _open(self, side: Side | WindowSide) -> list[str]:
        """The descriptor of an operand."""
        if isinstance(side, WindowSide):
            return side.descriptor()
        if not side.is_fetched:
            return []
        (batch, results, terms), sizes = side.steps, side.sizes
        order: list[tuple[Any, int, int]] = [
            (self._count(side), results, side.block[0]),
            (sizes[2], terms, side.block[1]),
        ]
        order = order if side.by_terms else order[::-1]
        if self.sizes[0] > 1:
            order = [(sizes[0], batch, 1), *order]
        shape, strides, block = (list(part) for part in zip(*order, strict=True))
        start = f"{side.name} + {int(side.ref.offset)}" if int(side.ref.offset) else side.name
        lengths = f"[{', '.join(map(str, shape))}]"
        text = f"tl.make_tensor_descriptor({start}, {lengths}, {strides}, {block})"
        return [f"if {ALIGNED}:", f"    {side.descriptor} = {text}"]

    def _count(self, side: Side) -> str:
        """How many results there are along a side."""
        return self.height if side.is_open else str(side.sizes[1])

    def _load(self, side: Side | WindowSide) -> list[str]:
        """One block of an operand: rows by terms of the left one, terms by columns of the right one."""
        if isinstance(side, WindowSide):
            return side.load()
        if side.name == "right" and self.inline:
            return [*self.inline.terms, *self.inline.lines]
        by_address = self._by_address(side)
        if not side.is_fetched:
            return by_address
        start = "row" if side is self.left else "column"
        at = [start, "term"] if side.by_terms else ["term", start]
        sides = [*side.block] if side.by_terms else [*side.block[::-1]]
        text = f"{side.descriptor}.load([{', '.join([*(['batch'] if self.sizes[0] > 1 else []), *at])}])"
        if self.sizes[0] > 1:
            text += f".reshape({sides[0]}, {sides[1]})"
        if side.by_terms is not (side is self.left):
            text += ".T"
        return [f"if {ALIGNED}:", f"    {side.name}_block = {text}", "else:", *indented(by_address)]

    def _by_address(self, side: Side) -> list[str]:
        """The same element by element: results beyond the end are the last ones again, terms beyond it are zero."""
        is_left = side is self.left
        (batch, results, terms), (_, size, count) = side.steps, side.sizes
        along, across = ("[:, None]", "[None, :]") if is_left else ("[None, :]", "[:, None]")
        places = f"{'row' if is_left else 'column'} + tl.arange(0, {side.length})"
        if side.is_open:
            places = f"tl.minimum({places}, {self.height} - 1)"
        elif size % (2 * side.block[0] if side.is_half else side.block[0]):
            places = f"tl.minimum({places}, {size - 1})"
        start = side.name
        if int(side.ref.offset):
            start += f" + {int(side.ref.offset)}"
        if self.sizes[0] > 1 and batch:
            start += f" + batch.to(tl.int64) * {batch}"
        mask = f", mask=places < {count}, other=0.0" if count % side.block[1] else ""
        return [
            f"results = ({places}){along}.to(tl.int64)",
            f"places = (term + tl.arange(0, KBLOCK)){across}",
            f"{side.name}_block = tl.load({start} + (results * {results} + places * {terms}){mask})",
        ]

    def _finish(self, right: Side, epilogue: str) -> list[str]:
        """The epilogue of the tile, in two halves where it is wide."""
        batch, m, *_ = self.sizes
        place, end = ("row", f"{self.height} - row") if self.boxes is None else ("point[:, None]", "inside[:, None]")
        first = place if batch == 1 else f"batch * {m} + {place}"
        pointers = "".join(f", {name}" for name in self.points.arguments)

        def text(sums: str, column: str, width: str) -> str:
            return f"{epilogue}({sums}, {first}, {end}, {column}{pointers}, YBLOCK, {width})"

        lines = [] if self.boxes is None else [*self.boxes.points(), "sums = sums.T"]
        if _finished_columns(self.tile) == self.tile.columns:
            return [*lines, text("sums", "column", "XBLOCK")]
        if right.is_half:
            return [*lines, text("sums", "column", right.length)]
        return [
            *lines,
            "halves = tl.permute(tl.reshape(sums, [YBLOCK, 2, XBLOCK // 2]), [0, 2, 1])",
            "first, second = tl.split(halves)",
            text("first", "column", "XBLOCK // 2"),
            text("second", "column + XBLOCK // 2", "XBLOCK // 2"),
        ]

    def kernel(self) -> GeneratedKernel:
        """The function of the epilogue, and the one that is launched."""
        tile = self.tile
        constants = {"YBLOCK": tile.rows, "XBLOCK": tile.columns, "KBLOCK": tile.terms, ALIGNED: True}
        constants |= {"RBLOCK": tile.terms} if self.inline else {}
        helpers = [*(self.inline.helpers if self.inline else ()), *([NEAREST_TF32] if self.rounds else [])]
        programs = ex.Int(self.programs) if self.extent is None else self.extent
        return kernel_of(self.gemm, self.points, self.buffers, self._lines, constants, programs, helpers)


def _finished_columns(tile: GemmTile) -> int:
    """The columns of a block that is finished at once."""
    whole = tile.rows * tile.columns < _HALVED * 32 * tile.num_warps
    return tile.columns if whole else tile.columns // 2


def left_over(tile: GemmTile, tiles: int, programs: int) -> int:
    """How many of the tiles are done in halves, each by two programs: those of a last round that occupies at most half of the programs, where halves are wide enough.

    Measured on an H200 (bfloat16, SiLU behind it, us without and with halves): 1,024 x 14,336 results of 4,096 terms 188, 170; 2,048 x 5,120 of 5,120 175, 154; 8,192 x 14,336 of 4,096
    1249, 1236.
    """
    rest = tiles % programs
    possible = _finished_columns(tile) < tile.columns and tile.columns // 2 >= _LEAST_HALF
    return rest if possible and tiles > programs >= 2 * rest else 0


def shared_bytes(tile: GemmTile, dtype: torch.dtype, result: int = 4) -> int:
    """The shared memory of a program: blocks of both operands for each stage, and one block of results, of so many bytes each, on its way to memory."""
    return _staged_bytes(tile, dtype) + tile.rows * _finished_columns(tile) * result


def _staged_bytes(tile: GemmTile, dtype: torch.dtype) -> int:
    return (tile.rows + tile.columns) * tile.terms * dtype.itemsize * tile.num_stages


def resident(tile: GemmTile, dtype: torch.dtype, device: Facts) -> int:
    """How many programs a multiprocessor runs at once."""
    threads = 32 * tile.num_warps
    # Results mostly have the type of operands; where they are larger, programs wait for each other.
    shared = shared_bytes(tile, dtype, max(2, dtype.itemsize)) + _RESERVED
    return max(1, min((device.shared + _RESERVED) // shared, device.registers // (threads * _REGISTERS)))
