"""Library calls as products of matrices: what ``gemms.py`` may give to a kernel of our own.

In: a step of a schedule. Out: a ``Product`` whose operands are views of those of the call; None for anything else, and where more sizes than the number of rows are
known at run time only. A convolution is a product as well: of its weights with the windows that it looks at, which are a matrix in memory where they have one element, and
else a ``Window`` of the image. What would need a copy to be read so stays with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve, frozen

from ..expr import ONE, ZERO, Expr, hint
from ..ir.kernel import Computed, Gemm, GemmTile, KernelBody, Window
from ..ir.layout import Buffer, Layout, Ref
from ..ir.loops import Extern, refs
from ..ops.grouped import GROUPED
from .steps import Step

aten = torch.ops.aten

#: Sums of products of these are float32, as the library's are.
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_CONVOLUTION, _TORCH_GROUPED = aten.convolution.default, aten._grouped_mm.default
_SCALED = aten._scaled_mm.default


@frozen
class Product:
    """A library's product: ``result = alpha * left @ right + beta * bias``. ``left`` is (batch, m, k), ``right`` (batch, k, n); of one batch, m may be known at run time only;
    ``result`` is all of ``out`` as (batch, m, n), and ``bias`` is expanded to that. With ``offsets`` it is a grouped product, whose right operands are those of
    the groups; ``second`` is another one of the same kind, ``further`` are those of more groups (all as in ``Gemm``).

    ``scales``, of float32 and of sizes that expand to the result's, multiply the sums. ``promotes``: sums of operands of 8 bits are kept in float32 after a
    few terms, as the units for matrices add them with fewer bits.
    """

    call: Extern
    out: Buffer
    left: Ref | Window
    right: Ref | Computed
    result: Ref
    bias: Ref | None = None
    alpha: float = 1.0
    beta: float = 1.0
    offsets: Ref | None = None
    second: Ref | None = None
    scales: tuple[Ref, ...] = ()
    promotes: bool = False
    further: tuple[Ref, ...] = ()

    @property
    def operands(self) -> tuple[Ref | Window | Computed, ...]:
        """All that it reads."""
        more = (self.bias, self.offsets, self.second, *self.further, *self.scales)
        found = (self.left, self.right, *more)
        return tuple(operand for operand in found if operand is not None)

    def gemm(self, body: KernelBody, tile: GemmTile) -> Gemm:
        """The kernel of our own that computes it in a tile, ``body`` at each point."""
        return Gemm(self.left, self.right, body, tile, self.offsets, self.second, self.promotes, self.further)

    @property
    def is_library(self) -> bool:
        """Whether a library computes it: rewrites make products of which only we have kernels."""
        return self.call.op is not GROUPED

    @property
    def is_grouped(self) -> bool:
        """Whether rows are multiplied with the matrix of their group."""
        return self.offsets is not None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, m, n, k; of rows whose number is known at run time only, about how many."""
        batch, m, k = (hint(size) for size in self.left.sizes)
        return batch, m, int(self.right.sizes[2]), k

    @property
    def rows(self) -> Expr:
        """Those of all batches."""
        return self.left.sizes[0] * self.left.sizes[1]

    @property
    def is_open(self) -> bool:
        """Whether the number of rows is known at run time only."""
        return not self.rows.is_int

    @property
    def is_convolution(self) -> bool:
        """Whether the library computes it as a convolution, under the flags for those."""
        return self.call.op is _CONVOLUTION


def read_product(step: Step) -> Product | None:
    """``step`` as a product of matrices of one type whose sums are float32, of more than nothing."""
    read = _READERS.get(step.op) if isinstance(step, Extern) else None
    if read is None or not isinstance(step, Extern) or step.outs[0] is None or step.checks:
        return None
    out = step.outs[0]
    parts: list[Layout | Ref] = [*refs(step.args[: _MATRICES.get(step.op)])]
    dtype, result = parts[0].dtype, out.layout.dtype
    same = dtype in DTYPES and all(part.dtype is dtype for part in parts)
    if result not in DTYPES or not (same or step.op is _SCALED):
        return None
    if result is not dtype and step.op not in (GROUPED, _SCALED):
        return None
    parts.append(out.layout)
    if not all(e.is_int for part in parts for e in (*part.strides, part.offset)):
        return None
    known = all(size.is_int for part in parts for size in part.sizes)
    product = read(step, out) if known or step.op is not _CONVOLUTION else None
    if product is None or not (known or _only_rows_are_open(product)):
        return None
    return product if all(product.sizes) else None


def _only_rows_are_open(product: Product) -> bool:
    """Whether the number of rows alone is known at run time only, of one batch."""
    left, right = product.left, product.right
    closed = (left.sizes[0], left.sizes[2], *right.sizes)
    return all(size.is_int for size in closed) and left.sizes[0] is ONE


# -- matrices ------------------------------------------------------------------------------------------------------------


def _matrices(call: Extern, out: Buffer) -> Product | None:
    *added, left, right = call.args
    scales = [call.kwargs.get(name, 1) for name in ("alpha", "beta")]
    if not all(isinstance(scale, int | float) for scale in scales):
        return None
    result, bias = _in_batches(Ref.whole(out)), added[0] if added else None
    alpha, beta = map(float, scales)
    return Product(call, out, _in_batches(left), _in_batches(right), result, bias, alpha, beta)


def _groups(call: Extern, out: Buffer) -> Product | None:
    """Rows of one matrix in groups, each with a matrix of its own; all else that the operator does is left to the library."""
    names = ("offs", "bias", "out_dtype")
    given = {**dict(zip(names, call.args[2:])), **call.kwargs}
    left, right = call.args[:2]
    offsets, (result, left) = given.get("offs"), (_in_batches(Ref.whole(out)), _in_batches(left))
    if given.get("bias") is not None or not isinstance(offsets, Ref) or offsets.dtype is not torch.int32:
        return None
    if (
        len(call.args[0].sizes) != 2
        or len(right.sizes) != 3
        or not all(e.is_int for e in (*offsets.strides, offsets.offset))
    ):
        return None
    groups = right.sizes[0]
    fits = offsets.sizes == (groups,) and groups is not ONE
    return Product(call, out, left, right, result, offsets=offsets) if fits else None


def _given_groups(call: Extern, out: Buffer) -> Product | None:
    """The same in our own operator: matrices may lie apart."""
    left, matrices, offsets, _ = call.args
    first, *further = map(_in_batches, matrices)
    result, left = _in_batches(Ref.whole(out)), _in_batches(left)
    if any((ref.sizes, ref.strides) != (first.sizes, first.strides) for ref in further):
        return None
    return Product(call, out, left, first, result, offsets=offsets, further=tuple(further))


def _in_batches(ref: Ref) -> Ref:
    return ref if len(ref.sizes) == 3 else evolve(ref, sizes=(ONE, *ref.sizes), strides=(ZERO, *ref.strides))


def _scaled(call: Extern, out: Buffer) -> Product | None:
    """Of float8 operands with one scale for each, or one for each row and each column; other kinds of scales are the library's."""
    names = ("bias", "scale_result", "out_dtype", "use_fast_accum")
    left, right, *scales = call.args[:4]
    given = dict(zip(names, call.args[4:])) | call.kwargs
    if any(side.dtype is not torch.float8_e4m3fn for side in (left, right)) or given.get("scale_result") is not None:
        return None
    (m, n), expanded = out.layout.sizes, []
    for scale, wanted in zip(scales, ((m, ONE), (ONE, n))):
        sizes = tuple(scale.sizes)
        if scale.dtype is not torch.float32 or not (all(size is ONE for size in sizes) or sizes == wanted):
            return None
        expanded.append(scale)
    bias = given.get("bias")
    if bias is not None and bias.dtype not in DTYPES:
        return None
    promotes = not given.get("use_fast_accum", False)
    operands = (_in_batches(left), _in_batches(right), _in_batches(Ref.whole(out)))
    return Product(call, out, *operands, bias, scales=tuple(expanded), promotes=promotes)


# -- convolutions --------------------------------------------------------------------------------------------------------


def _convolution(call: Extern, out: Buffer) -> Product | None:
    """Groups are the batches, points of the result the rows, its channels the columns; positions of the window, channels last, are the terms."""
    image, weight, bias, stride, padding, dilation, transposed, _, groups = call.args
    if transposed is not False or len(image.sizes) not in (3, 4):
        return None
    moves = (_pair(stride, 1), _pair(padding, 0), _pair(dilation, 1))
    image, weight, result = (_as_images(ref) for ref in (image, weight, Ref.whole(out)))
    terms, rows = _joined(weight, (2, 3, 1)), _joined(result, (0, 2, 3))
    if terms is None or rows is None:
        return None
    groups, count = int(groups), int(weight.sizes[0]) // int(groups)
    taps, points = ((int(ref.sizes[2]), int(ref.sizes[3])) for ref in (weight, result))
    apart = int(weight.strides[0])
    length = taps[0] * taps[1] * int(weight.sizes[1])
    right = evolve(weight, sizes=(groups, length, count), strides=(count * apart, terms, apart))
    apart = int(result.strides[1])
    number = int(result.sizes[0]) * points[0] * points[1]
    matrix = evolve(result, sizes=(groups, number, count), strides=(count * apart, rows, apart))
    if bias is not None:
        apart = int(bias.strides[0])
        bias = evolve(bias, sizes=(groups, 1, count), strides=(count * apart, 0, apart))
    left = _windows(Window(image, groups, points, taps, *moves))
    return Product(call, out, left, right, matrix, bias)


def _windows(window: Window) -> Ref | Window:
    """The same as a matrix where every window is one element and points follow each other at one distance."""
    image = window.image
    alone = window.taps == window.stride == (1, 1) and window.padding == (0, 0)
    rows = _joined(image, (0, 2, 3)) if alone else None
    if rows is None:
        return window
    step = int(image.strides[1])
    return evolve(image, sizes=window.sizes, strides=(window.channels * step, rows, step))


def _as_images(ref: Ref) -> Ref:
    """A row of points is an image of one row."""
    if len(ref.sizes) == 4:
        return ref
    (*outer, length), (*steps, step) = ref.sizes, ref.strides
    return evolve(ref, sizes=(*outer, ONE, length), strides=(*steps, ZERO, step))


def _pair(given: Sequence[Expr | int], before: int) -> tuple[int, int]:
    """A number for both dimensions of an image; one alone stands for both, or for those of a row."""
    first, *rest = map(int, given)
    return (first, rest[0]) if rest else (before, first)


def _joined(ref: Ref, dims: Sequence[int]) -> int | None:
    """The distance of neighbours in ``dims``, row-major, taken together; None where that differs from place to place."""
    length, distance = 1, 0
    for dim in reversed(dims):
        size, stride = int(ref.sizes[dim]), int(ref.strides[dim])
        if size == 1:
            continue
        if length == 1:
            distance = stride
        elif stride != length * distance:
            return None
        length *= size
    return distance


#: Library calls that are products, and how each is read.
_READERS: Mapping[Any, Callable[[Extern, Buffer], Product | None]] = {
    aten.mm.default: _matrices,
    aten.bmm.default: _matrices,
    aten.addmm.default: _matrices,
    aten.baddbmm.default: _matrices,
    _TORCH_GROUPED: _groups,
    GROUPED: _given_groups,
    _SCALED: _scaled,
    _CONVOLUTION: _convolution,
}
#: How many arguments are of the result's type, where not all are.
_MATRICES = {_TORCH_GROUPED: 2, GROUPED: 2}
