"""Compute a product of few rows as several over parts of what is summed over, side by side.

In: a functional graph. Out: the same graph with ``a @ b`` as ``a_1 @ b_1 + a_2 @ b_2 + …`` where the library would keep only a part
of the GPU busy: the parts are one batched product, and the kernel that reads the result adds them up.

Rounding: in float32, each element is a sum of the same products in another order; the error bound of a sum in parts is no larger.
(The library itself adds in parts for such sizes, in a second kernel.) Products of 16-bit numbers stay: the parts would be rounded.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from ..device import device_facts
from .bias import is_finished_by_kernels
from .engine import Editor, Match, Rule
from .joins import is_transpose
from .patterns import Like, Operand, call
from .products import free_bytes

aten = torch.ops.aten

#: So many parts, each of at least so many terms, for products of at most so many rows.
PARTS, FEWEST_TERMS, MOST_ROWS = 4, 128, 64
#: Rows and columns that one multiprocessor takes at a time in the library's kernels for such products.
_TILE = 32


def _has_kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels


def _is_narrow(match: Match, context: CompileContext) -> bool:
    """Whether the library's blocks of the result are fewer than multiprocessors, generated kernels read it, and the parts may lie in memory."""
    val, left, right = match.val(), match.val("left"), match.val("right")
    sizes = (*val.shape, left.shape[1])
    if not all(isinstance(size, int) for size in sizes):
        return False
    rows, columns, terms = sizes
    blocks = -(-rows // _TILE) * -(-columns // _TILE)
    if not 1 < rows <= MOST_ROWS or terms % PARTS or terms < PARTS * FEWEST_TERMS:
        return False
    if blocks > device_facts(val.device).multiprocessors or not is_finished_by_kernels(match.root):
        return False
    dense = right.t() if is_transpose(match["right"]) else right
    if not (left.is_contiguous() and dense.is_contiguous()):
        return False
    return bool(PARTS * val.numel() * val.dtype.itemsize <= free_bytes(match.root.graph, context))


def _in_parts(match: Match, edit: Editor) -> fx.Node:
    terms = match.val("left").shape[1]
    rows, columns = match.val().shape
    each = terms // PARTS
    left = edit.call(aten.view.default, match["left"], [rows, PARTS, each])
    left = edit.call(aten.permute.default, left, [1, 0, 2])
    parts = edit.call(aten.bmm.default, left, _parts_of(edit, match["right"], columns, each))
    first, *others = (edit.call(aten.select.int, parts, 0, n) for n in range(PARTS))
    for other in others:
        first = edit.call(aten.add.Tensor, first, other)
    return first


def _parts_of(edit: Editor, right: fx.Node, columns: int, each: int) -> fx.Node:
    """The right operand as a batch of its rows, as a view; right after the operand, for all its products to share."""
    if is_transpose(right):
        view = edit.call_once(right, aten.view.default, right.args[0], [columns, PARTS, each])
        return edit.call_once(view, aten.permute.default, view, [1, 2, 0])
    return edit.call_once(right, aten.view.default, right, [PARTS, each, columns])


RULES = (
    Rule(
        name="product_in_parts",
        identity="a @ b = a_1 @ b_1 + a_2 @ b_2 + … over parts of what is summed over; float32, another order of one sum",
        pattern=call(
            aten.mm.default, Operand("left"), Operand("right"), like=Like(device="cuda", dtypes=(torch.float32,))
        ),
        check=_is_narrow,
        replace=_in_parts,
        when=_has_kernels,
    ),
)
