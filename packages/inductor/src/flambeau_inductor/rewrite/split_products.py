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
from ..devices import device_facts
from .bias import is_finished_by_kernels
from .engine import Editor, Match, Rule
from .fakes import bytes_of, is_row_major
from .joins import is_transpose
from .patterns import Like, Operand, call
from .products import free_bytes

aten = torch.ops.aten

#: Terms of one part, and how many parts there may be. Fewer are no faster than the library, more are more to add up.
_TERMS, _FEWEST, _MOST = 128, 4, 16
#: Rows up to which the library leaves multiprocessors idle.
_MOST_ROWS = 128
#: For fewer rows than this the library has kernels that read a transposed operand of more than so many columns at full speed.
_FEW_ROWS, _MANY_COLUMNS = 12, 1024
#: Rows and columns of the library's blocks for such products, and how many of all parts one multiprocessor takes.
_TILE, _BLOCKS = 32, 8


def count_of(rows: int, columns: int, terms: int, turned: bool, multiprocessors: int) -> int:
    """In how many parts to compute a product of these sizes; 1 where the library does it better at once.

    Measured on an H200 (torch 2.11, float32 without TF32, from CUDA graphs, the addition of the parts included) over 1,332 products of 2 to
    256 rows, 384 to 8,192 terms and 10 to 4,096 columns. Of the 675 that are divided here, parts take 0.13 to 1.2 of the time, 0.73 in the
    geometric mean; 11 take more than 1.05. (Four parts whatever the number of terms, up to 64 rows, take up to 3.5 of it.)

    Args:
        turned: the right operand is a transpose.
        multiprocessors: of the device.
    """
    parts = terms // _TERMS
    if not 1 < rows <= _MOST_ROWS or not _FEWEST <= parts <= _MOST or terms % parts:
        return 1
    if rows < _FEW_ROWS and turned and columns > _MANY_COLUMNS:
        return 1
    blocks = -(-rows // _TILE) * -(-columns // _TILE)
    return parts if blocks * parts <= _BLOCKS * multiprocessors else 1


def _has_kernels(context: CompileContext) -> bool:
    return context.config.triton_kernels


def _count(match: Match) -> int:
    sizes = (*match.val().shape, match.val("left").shape[1])
    if not all(isinstance(size, int) for size in sizes):
        return 1
    rows, columns, terms = sizes
    multiprocessors = device_facts(match.val().device).multiprocessors
    return count_of(rows, columns, terms, is_transpose(match["right"]), multiprocessors)


def _pays(match: Match, context: CompileContext) -> bool:
    """Whether there are to be parts, generated kernels read the result, and the parts may lie in memory at once."""
    count = _count(match)
    if count == 1 or not is_finished_by_kernels(match.root):
        return False
    left, right = match.val("left"), match.val("right")
    dense = right.t() if is_transpose(match["right"]) else right
    if not (is_row_major(left) and is_row_major(dense)):
        return False
    return count * bytes_of(match.val()) <= free_bytes(match.root.graph, context)


def _in_parts(match: Match, edit: Editor) -> fx.Node:
    count, terms = _count(match), match.val("left").shape[1]
    rows, columns = match.val().shape
    left = edit.call(aten.view.default, match["left"], [rows, count, terms // count])
    left = edit.call(aten.permute.default, left, [1, 0, 2])
    parts = edit.call(aten.bmm.default, left, _parts_of(edit, match["right"], columns, count))
    first, *others = (edit.call(aten.select.int, parts, 0, n) for n in range(count))
    for other in others:
        first = edit.call(aten.add.Tensor, first, other)
    return first


def _parts_of(edit: Editor, right: fx.Node, columns: int, count: int) -> fx.Node:
    """The right operand as a batch of its rows, as a view; right after the operand, for all its products to share."""
    each = right.meta["val"].shape[0] // count
    if is_transpose(right):
        view = edit.call_once(right, aten.view.default, right.args[0], [columns, count, each])
        return edit.call_once(view, aten.permute.default, view, [1, 2, 0])
    return edit.call_once(right, aten.view.default, right, [count, each, columns])


RULES = (
    Rule(
        name="product_in_parts",
        identity="a @ b = a_1 @ b_1 + a_2 @ b_2 + … over parts of what is summed over; float32, another order of one sum",
        pattern=call(
            aten.mm.default,
            Operand("left"),
            Operand("right"),
            like=Like(libraries="leaves_narrow_idle", dtypes=(torch.float32,)),
        ),
        check=_pays,
        replace=_in_parts,
        when=_has_kernels,
    ),
)
