"""Products of few rows with weights of 8 bits on a CPU: the library multiplies by the integers as they lie in memory.

In: a functional graph. Out: the same graph with ``_weight_int8pack_mm`` where a product of up to ``_ROWS`` rows in bfloat16 reads an int8 weight that was converted for it.
The scale of each column, which most such weights have, stays behind the product: with it the library would round once where eager rounds twice. It is given ones.

Measured on one core of a Zen 5 (torch 2.13), converting and multiplying beside it, 4,096 terms and columns: 16.5 and 0.4 ms for one row, 16.1 and 0.7 for four, under a load that both had; a converting
kernel of ours and oneDNN take 3.5 for sixteen rows where this takes 3.0, and it takes four times as long for four times the rows.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .fakes import is_row_major
from .patterns import Like, Operand, call

aten = torch.ops.aten

#: Rows up to which reading half the bytes is worth more than the library's faster multiplication; elements of a weight from which on reading is what takes time.
_ROWS, _ELEMENTS = 8, 1 << 16
#: The library's kernel reads so many terms at a time, and past the end where there are fewer.
_TERMS = 32


def _is_fast(context: CompileContext) -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _pays(match: Match, context: CompileContext) -> bool:
    left, right, weight = match.val("left"), match.val("right"), match.val("weight")
    if any(type(size) is not int for val in (left, weight) for size in val.shape) or weight.dim() != 2:
        return False
    (rows, terms), (columns, _) = left.shape, weight.shape
    turned = right.shape == (terms, columns) and right.stride() == (1, terms)
    if not turned or not is_row_major(left) or not is_row_major(weight):
        return False
    return 0 < rows <= _ROWS and terms % _TERMS == 0 and terms * columns >= _ELEMENTS


def _by_integers(match: Match, edit: Editor) -> fx.Node:
    left, weight = match["left"], match["weight"]
    val = match.val("left")
    ones = edit.call(aten.full.default, [match.val("weight").shape[0]], 1.0, dtype=val.dtype, device=val.device)
    return edit.call(aten._weight_int8pack_mm.default, left, weight, ones, known=match.val())


_CONVERTED = call(
    aten._to_copy.default,
    Operand("weight", Like(dtypes=(torch.int8,))),
    name="converted",
    like=Like(dtypes=(torch.bfloat16,)),
    others=True,
)
_TURNED = call((aten.t.default, aten.permute.default, aten.transpose.int), _CONVERTED, name="right", others=True)
RULES = (
    Rule(
        name="product_with_a_weight_of_eight_bits",
        identity="x @ w.to(x.dtype).t() by the library's kernel for int8 weights: summed in float32 and rounded once, as it would be",
        pattern=call(
            aten.mm.default,
            Operand("left"),
            _TURNED,
            like=Like(libraries="packs_weights", dtypes=(torch.bfloat16,)),
        ),
        check=_pays,
        replace=_by_integers,
        when=_is_fast,
    ),
)
