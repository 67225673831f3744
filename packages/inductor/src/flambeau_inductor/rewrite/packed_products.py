"""Products on a CPU by the library that has the faster kernels, with weights that it has packed beforehand where they are frozen.

In: a functional graph whose frozen inputs are marked (`constants.py`). Out: the same graph with ``mkl::_mkl_linear`` (float32) or
``mkldnn::_linear_pointwise`` (bfloat16, or float32 where MKL's kernels are slow) where a product reads a weight that follows from them. The packing is a node of the graph that follows from them
too, so that it is computed once. With ``numerics="fast"`` oneDNN's call does the activation behind it; not ReLU, of which it makes 0 where eager has NaN, nor GELU by
tanh, which differs for infinities. Products in bfloat16 whose weight is not frozen go through oneDNN's call as well: ATen's writes the bias over the whole
result first.

Measured on one core of a Sapphire Rapids (torch 2.13), beside ``addmm``, 1 to 3,136 rows, 64 to 3,072 terms and columns:

- float32, packed by MKL: 0.39 to 0.75 of the time for 4 to 32 rows with 768 or more terms and columns, 0.80 to 0.97 for more rows; 1.0 to 1.5 for one or two rows,
  for weights of less than 2^15 elements, and for fewer than 256 columns. oneDNN's packed call is slower than MKL's in nearly all.
- bfloat16, packed by oneDNN: 0.61 to 0.91 from two rows or 2^16 elements of the weight on, 4 for less; not packed: 0.64 to 0.90, but 1.05 where few rows read
  a large weight.

On one core of an EPYC (Zen 5, torch 2.13), float32, not packed: three products of 400 to 2,048 rows whose results are joined, by oneDNN and copied, take 0.33 to 0.96 of the time that
MKL's take written into their places (`lowering/joins.py`), 16 to 1,024 terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from .constants import is_constant
from .engine import Editor, Match, Rule
from .fakes import hint_of, is_row_major
from .patterns import Anything, Call, Like, Operand, Through, call, products

aten = torch.ops.aten

#: Elements of a weight from which MKL's packed product wins: for as many rows as this and more, for fewer rows than that, and for at least 8 up to ``_MIDDLE`` rows.
_LARGE, _USUAL, _SMALL = 1 << 19, 1 << 17, 1 << 15
_FEWEST_COLUMNS, _MIDDLE = 256, 128
#: Multiplications that oneDNN's call costs to start, in bfloat16; weights that few rows read faster as ATen does.
_WORK, _FEW_ROWS, _STREAMED = 1 << 16, 32, 1 << 18
#: Multiplications from which oneDNN's call wins in float32 where MKL's kernels are slow: without a packed weight, with one, and with rows that do not follow each other;
#: and how many rows it takes.
WORK_PLAIN, _WORK_PACKED, _WORK_STRIDED, _ROWS = 1 << 21, 1 << 20, 1 << 23, 4
_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def is_exact(context: CompileContext) -> bool:
    """Whether the libraries' calls for products in float32 round nothing but their results."""
    # Where products may be rounded, the library's own product does that. Not ``get_float32_matmul_precision``: that raises where a program has set
    # precisions one backend at a time.
    exact = torch.backends.mkldnn.matmul.fp32_precision in ("none", "ieee")
    return bool(torch.backends.mkl.is_available() and torch.backends.mkldnn.enabled and exact)


def _has_bfloat16(context: CompileContext) -> bool:
    return bool(torch.backends.mkldnn.enabled and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _sizes(match: Match) -> tuple[int, int, int] | None:
    """Rows, terms and columns, where those of the weight are known."""
    left, right = match.val("left"), match.val("right")
    if not all(isinstance(size, int) for size in right.shape):
        return None
    return hint_of(left.shape[0]), int(right.shape[0]), int(right.shape[1])


def _packed_by_mkl(match: Match, context: CompileContext) -> bool:
    sizes = _sizes(match)
    # It is packed for a number of rows.
    if sizes is None or not isinstance(match.val("left").shape[0], int) or _is_slow(match):
        return False
    rows, terms, columns = sizes
    weight = terms * columns
    least = _LARGE if rows < 8 else _SMALL if rows <= _MIDDLE else _USUAL
    return rows >= 4 and columns >= _FEWEST_COLUMNS and weight >= least and is_constant(match["right"])


def _packed_by_onednn(match: Match, context: CompileContext) -> bool:
    sizes = _sizes(match)
    if sizes is None or not _is_laid_out(match):
        return False
    rows, terms, columns = sizes
    if rows * terms * columns < _WORK:
        return False
    return is_constant(match["right"]) or not (rows < _FEW_ROWS and terms * columns >= _STREAMED)


def _is_slow(match: Match) -> bool:
    return device_of(match.val().device).libraries.slow_products()


def _faster_by_onednn(match: Match, context: CompileContext) -> bool:
    sizes = _sizes(match)
    if sizes is None or not _is_slow(match):
        return False
    rows, terms, columns = sizes
    if not is_row_major(match.val("left")):
        least = _WORK_STRIDED
    else:
        least = _WORK_PACKED if is_constant(match["right"]) else WORK_PLAIN
    return rows >= _ROWS and rows * terms * columns >= least


def _is_laid_out(match: Match) -> bool:
    """Whether the rows of both operands follow each other: the library copies others."""
    left, right = match.val("left"), match.val("right")
    return is_row_major(left) and (is_row_major(right.t()) or is_constant(match["right"]))


def _weight(match: Match, edit: Editor) -> fx.Node:
    """The right operand as a linear layer has it: outputs by inputs."""
    right: fx.Node = match["right"]
    weight = edit.call(aten.permute.default, right, [1, 0])
    # oneDNN reads weights in any strides; packing them is only for those that are frozen.
    if is_row_major(weight.meta["val"]) or not is_constant(right):
        return weight
    return edit.call(aten.clone.default, weight, memory_format=torch.contiguous_format)


def _bias(match: Match) -> fx.Node | None:
    return match["bias"] if "bias" in match.bindings.values else None


def _with_mkl(match: Match, edit: Editor) -> fx.Node:
    weight = _weight(match, edit)
    rows, (columns, terms) = int(match.val("left").shape[0]), weight.meta["val"].shape
    packed = edit.call(torch.ops.mkl._mkl_reorder_linear_weight.default, weight, rows, known=weight.meta["val"])
    # The call asks the weight as it was for its sizes alone, as long as there are as many rows as it was packed for.
    corner = edit.call(aten.slice.Tensor, edit.call(aten.slice.Tensor, weight, 0, 0, 1), 1, 0, 1)
    corner = edit.call(aten.clone.default, corner, memory_format=torch.contiguous_format)
    sizes = edit.call(aten.expand.default, corner, [columns, terms])
    args = (match["left"], packed, sizes, _bias(match), rows)
    return edit.call(torch.ops.mkl._mkl_linear.default, *args, known=match.val())


def _with_onednn(match: Match, edit: Editor) -> fx.Node:
    weight = _weight(match, edit)
    if is_constant(match["right"]):
        rows = match.val("left").shape[0]
        batch = rows if isinstance(rows, int) else None
        packing = torch.ops.mkldnn._reorder_linear_weight.default
        weight = edit.call(packing, weight, batch, known=weight.meta["val"])
    return _linear(edit, match["left"], weight, _bias(match), ("none", [], ""), match.val())


def _linear(edit: Editor, left: Any, weight: Any, bias: Any, behind: tuple[str, list[Any], str], val: Any) -> fx.Node:
    return edit.call(torch.ops.mkldnn._linear_pointwise.default, left, weight, bias, *behind, known=val)


def _may_round_once(context: CompileContext) -> bool:
    return context.config.epilogue_fusion and context.config.numerics == "fast" and _has_bfloat16(context)


def _fused(name: str, how: str = "") -> Any:
    """What puts the activation ``name`` into the library's call."""

    def replace(match: Match, edit: Editor) -> fx.Node:
        product: fx.Node = match["product"]
        left, weight, bias = product.args[:3]
        result = _linear(edit, left, weight, bias, (name, [], how), match.val("product"))
        for view in reversed(match["views"]):
            result = edit.call(view.target, result, *view.args[1:], known=view.meta["val"])
        return result

    return replace


def _products(dtype: torch.dtype) -> dict[str, Call]:
    return products(Like(libraries="packs_weights", dtypes=(dtype,)), Operand("bias", Like(ranks=(1,))))


def _rules() -> Iterator[Rule]:
    if not torch.backends.mkldnn.is_available():
        return
    for name, pattern in _products(torch.float32).items():
        yield Rule(
            name=f"{name}_with_a_packed_weight",
            identity="x @ w + b by the library's kernel for packed weights; float32, another order of one sum",
            pattern=pattern,
            check=_packed_by_mkl,
            replace=_with_mkl,
            when=is_exact,
        )
        yield Rule(
            name=f"{name}_by_onednn",
            identity="x @ w + b by oneDNN's kernel where MKL's is slow; float32, another order of one sum",
            pattern=pattern,
            check=_faster_by_onednn,
            replace=_with_onednn,
            when=is_exact,
        )
    for name, pattern in _products(torch.bfloat16).items():
        yield Rule(
            name=f"{name}_of_bfloat16",
            identity="x @ w + b, summed in float32 and rounded once, by oneDNN's kernel",
            pattern=pattern,
            check=_packed_by_onednn,
            replace=_with_onednn,
            when=_has_bfloat16,
        )
    linear = torch.ops.mkldnn._linear_pointwise.default
    product = Through(_VIEWS, call(linear, Operand(), Operand(), Anything(), "none", [], "", name="product", only_user=True), name="views")  # fmt: skip
    once = "{} of the product before it is rounded: one rounding in the place of two, for numerics='fast'"
    for op, name, how in (
        (aten.gelu.default, "gelu", "none"),
        (aten.silu.default, "swish", ""),
        (aten.sigmoid.default, "sigmoid", ""),
        (aten.tanh.default, "tanh", ""),
    ):
        yield Rule(
            name=f"{name}_of_a_linear",
            identity=once.format(name),
            pattern=call(op, product),
            replace=_fused(name, how),
            when=_may_round_once,
        )


RULES = tuple(_rules())
