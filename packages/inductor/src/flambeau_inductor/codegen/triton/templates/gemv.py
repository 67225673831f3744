"""Products of a few rows with a matrix whose rows run along the terms: multiplied and added up without the units for matrices.

In: ``Gemm`` steps whose tile has fewer rows than such a unit takes. Out: kernels. Each program has all rows and a few columns, reads these columns of the right
operand once, as fast as memory gives them, and adds up in float32: each thread its own neighbours first, threads when all terms are done. Such a product
takes as long as its right operand takes to be read, so that what matters is how much of it is on its way at a time.
"""

from __future__ import annotations

from flambeau_runtime.triton_kernels import WAIT

from ....expr import Int
from ....ir.kernel import Computed, Gemm, Window
from ....ir.layout import Ref
from ...cpp.canonical import canonical
from ...kernel import GeneratedKernel
from ..function import PROGRAM
from .assemble import indented, kernel_of
from .inline import Inline
from .points import Points

#: Rows from which on units for matrices take part.
FEWEST_ROWS = 16
#: Bytes that a thread reads at once.
VECTOR = 16


def takes(left: Ref | Window, right: Ref | Computed) -> bool:
    """Whether the rows are few, and terms are neighbours in memory in the right operand, or in what it is computed from."""
    source = right.source if isinstance(right, Computed) else right
    rows = left.sizes[1]
    return isinstance(left, Ref) and int(source.strides[1]) == 1 and rows.is_int and int(rows) < FEWEST_ROWS


def gemv_kernel(gemm: Gemm) -> GeneratedKernel:
    """The kernel of one product. Raises UnsupportedKernel where its epilogue holds what Triton cannot express."""
    return _Writer(gemm).kernel()


class _Writer:
    def __init__(self, gemm: Gemm) -> None:
        assert isinstance(gemm.left, Ref), "windows of images have many rows"
        self.gemm, self.tile, self.left = gemm, gemm.tile, gemm.left
        body, self.buffers = canonical(gemm.body)
        batch, m, k = (int(size) for size in gemm.left.sizes)
        n = int(gemm.right.sizes[2])
        self.sizes = (batch, m, n, k)
        tile = self.tile
        assert m <= tile.rows, "a program has all rows"
        uneven = [prefix for prefix, size, block in (("y", m, tile.rows), ("x", n, tile.columns)) if size % block]
        self.points = Points(body, uneven, (("y", tile.rows), ("x", tile.columns)))
        self.across = -(-n // tile.columns)
        self.source = gemm.right.source if isinstance(gemm.right, Computed) else gemm.right
        computed = gemm.right if isinstance(gemm.right, Computed) else None
        self.inline = computed and Inline(computed, by_columns=True, masked=k % tile.terms > 0)

    def _lines(self, epilogue: str) -> list[str]:
        tile, (batch, m, n, k) = self.tile, self.sizes
        lanes = min(VECTOR // self.source.dtype.itemsize, tile.terms)
        rows, left = range(m), self.left
        lines = [f"pid = {PROGRAM}"]
        lines += [f"batch = pid // {self.across}", f"place = pid % {self.across}"] if batch > 1 else ["place = pid"]
        lines += ["column = place * XBLOCK", "columns = column + tl.arange(0, XBLOCK)"]
        if n % tile.columns:
            # Beyond the last column is the last one again.
            lines.append(f"columns = tl.minimum(columns, {n - 1})")
        lines += ["along = tl.arange(0, KBLOCK)[None, :]", WAIT]
        lines.append(f"left_at = {self._start(left)}")
        if self.inline:
            lines += ["bi = batch"] if batch > 1 else []
            lines += [self.inline.columns, *self.inline.once]
        else:
            start = f"{self._start(self.source)} + columns[:, None].to(tl.int64) * {int(self.source.strides[2])}"
            lines.append(f"right_at = {start}")
        lines += [f"sums_{row} = tl.zeros([XBLOCK, KBLOCK // {lanes}], tl.float32)" for row in rows]
        mask = f", mask=places < {k}, other=0.0" if k % tile.terms else ""
        steps = ["term = step * KBLOCK", "places = term + along"]
        if self.inline:
            steps += [*self.inline.terms, *self.inline.lines, "right_block = right_block.to(tl.float32)"]
        else:
            steps.append(f"right_block = tl.load(right_at + places{mask}).to(tl.float32)")
        for row in rows:
            start = f"left_at + {row * int(left.strides[1])}" if row else "left_at"
            steps += [
                f"left_block = tl.load({start} + places * {int(left.strides[2])}{mask}).to(tl.float32)",
                f"products = tl.reshape(left_block * right_block, [XBLOCK, KBLOCK // {lanes}, {lanes}])",
                f"sums_{row} += tl.sum(products, 2)",
            ]
        lines.append(f"for step in tl.range(0, {-(-k // tile.terms)}, num_stages={tile.num_stages}):")
        lines += [*indented(steps), *self._rows(), self._finish(epilogue)]
        return lines

    def _start(self, operand: Ref) -> str:
        """The first element of the batch."""
        name = "right" if operand is self.source else "left"
        start = f"{name} + {int(operand.offset)}" if int(operand.offset) else name
        batched = self.sizes[0] > 1 and int(operand.strides[0])
        return f"{start} + batch.to(tl.int64) * {int(operand.strides[0])}" if batched else start

    def _rows(self) -> list[str]:
        """The sums of all rows as one block."""
        lines = ["sums = tl.broadcast_to(tl.sum(sums_0, 1)[None, :], [YBLOCK, XBLOCK])"]
        if self.sizes[1] > 1:
            lines.append("number = tl.arange(0, YBLOCK)[:, None]")
        for row in range(1, self.sizes[1]):
            lines.append(f"sums = tl.where(number == {row}, tl.sum(sums_{row}, 1)[None, :], sums)")
        return lines

    def _finish(self, epilogue: str) -> str:
        batch, m, *_ = self.sizes
        first = f"batch * {m}" if batch > 1 else "0"
        pointers = "".join(f", {name}" for name in self.points.arguments)
        return f"{epilogue}(sums, {first}, {m}, column{pointers}, YBLOCK, XBLOCK)"

    def kernel(self) -> GeneratedKernel:
        """The function of the epilogue, and the one that is launched."""
        tile = self.tile
        constants = {"YBLOCK": tile.rows, "XBLOCK": tile.columns, "KBLOCK": tile.terms}
        constants |= {"RBLOCK": tile.terms} if self.inline else {}
        helpers = self.inline.helpers if self.inline else ()
        programs = self.sizes[0] * self.across
        return kernel_of(self.gemm, self.points, self.buffers, self._lines, constants, Int(programs), helpers)
