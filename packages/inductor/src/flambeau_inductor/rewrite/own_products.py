"""Products of float32 on a CPU by the runtime's kernel for linear layers.

In: a functional graph. Out: the same graph with ``flambeau::linear`` in the place of a product of few rows by a matrix that lies as a linear layer has its weight. The
number of rows may be known at run time only (those of an expert): the call leaves many to the library. A weight that follows from frozen inputs (`constants.py`) is packed once where
that is faster, and ``flambeau::packed_linear`` reads it.

The library copies a weight into a layout of its own at each call, which takes as long as multiplying a few rows. The kernel reads a weight where it lies, and lays out the rows. It
adds the bias at no cost. One thread: how the library divides its work among many was not compared.

Measured on one core of a Xeon (Sapphire Rapids, torch 2.11), weights of 768 x 768 to 1024 x 2048 that come from memory: 0.52 to 0.77 of the time of ``mm`` for 8 to 64 rows, and about as long for 4; with
128 rows 0.89 and 0.92 for 2048 x 5632 and 5632 x 2048, and 1.0 to 1.2 for other weights; 1.05 to 1.5 with more. With a packed weight 0.41 for 8 rows,
where MKL's packed product takes 0.58, but more than without for 16 and more. On one core of an EPYC (Zen 5, torch 2.13), where MKL's kernels are slow,
as long as oneDNN's products or up to a tenth less for all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from flambeau_runtime import linear

from ..context import CompileContext
from ..devices import device_of
from .constants import is_constant
from .engine import Editor, Match, Rule
from .fakes import same_size
from .packed_products import is_exact
from .patterns import Like, Operand, products

aten = torch.ops.aten

#: Elements of a weight, rows and columns from which the call is worth starting.
_WEIGHT, _ROWS, _COLUMNS = 1 << 18, 5, 32
#: Rows up to which it is where MKL's kernels are fast; up to which it is for a weight that is not frozen, large, and so wide and so high; and up to which a packed weight is
#: read faster.
_MOST, _MOST_LARGE, _MOST_PACKED = 64, 128, 8
_LARGE, _WIDE = 1 << 23, 1 << 11
#: Rows that are few however many lanes stay empty (32 and 64 were measured, and 49, which take as long as by the library), and lanes of a vector.
_FEW, _VECTOR = 48, 16
_ANY = 1 << 31


def are_used(context: CompileContext) -> bool:
    """Whether products may go to the kernel."""
    return torch.get_num_threads() == 1 and linear.has_kernel() and is_exact(context)


def _most_rows(match: Match) -> int:
    if device_of(match.val().device).libraries.slow_products():
        return _ANY
    terms, columns = match.val("right").shape
    is_large = min(terms, columns) >= _WIDE and terms * columns >= _LARGE
    return _MOST_LARGE if is_large and not is_constant(match["right"]) else _MOST


def _pays(match: Match, context: CompileContext) -> bool:
    left, right = match.val("left"), match.val("right")
    if not all(isinstance(size, int) for size in right.shape) or not same_size(left.stride()[1], 1):
        return False
    rows, (terms, columns) = left.shape[0], right.shape
    if columns < _COLUMNS or terms * columns < _WEIGHT or not _is_weight(match):
        return False
    return not isinstance(rows, int) or (_ROWS <= rows <= _most_rows(match) and _fills_lanes(rows))


def _fills_lanes(rows: int) -> bool:
    """Whether few of the kernel's lanes stay empty, as the call asks where it learns of the rows at run time: 49 rows take as long as 64."""
    return rows <= _FEW or 5 * rows >= 4 * (-(-rows // _VECTOR) * _VECTOR)


def _is_weight(match: Match) -> bool:
    """Whether the right operand's terms lie side by side, or may be laid out once."""
    return same_size(match.val("right").stride()[0], 1) or is_constant(match["right"])


def _is_packed(match: Match) -> bool:
    rows, most = match.val("left").shape[0], _most_rows(match)
    return is_constant(match["right"]) and (most == _ANY or (isinstance(rows, int) and rows <= _MOST_PACKED))


def _linear(match: Match, edit: Editor) -> fx.Node | None:
    ops = linear.linear_ops()
    assert ops is not None, "the rule is not used without"
    weight = edit.call(aten.permute.default, match["right"], [1, 0])
    bias: Any = match["bias"] if "bias" in match.bindings.values else None
    if _is_packed(match):
        columns, terms = weight.meta["val"].shape
        with edit.mode:
            val = weight.meta["val"].new_empty(-(-columns // linear.PANEL), terms, linear.PANEL)
        packed = edit.call(ops.pack, weight, known=val)
        return edit.call(ops.packed_linear, match["left"], packed, columns, bias, known=match.val())
    if not same_size(weight.meta["val"].stride()[1], 1):
        weight = edit.call(aten.clone.default, weight, memory_format=torch.contiguous_format)
    return edit.call(ops.linear, match["left"], weight, bias, _most_rows(match), known=match.val())


def _rules() -> Iterator[Rule]:
    like = Like(libraries="packs_weights", dtypes=(torch.float32,))
    for name, pattern in products(like, Operand("bias", Like(ranks=(1,)))).items():
        yield Rule(
            name=f"{name}_by_our_kernel",
            identity="x @ w + b by a kernel of our own; float32, another order of one sum",
            pattern=pattern,
            check=_pays,
            replace=_linear,
            when=are_used,
        )


RULES = tuple(_rules())
