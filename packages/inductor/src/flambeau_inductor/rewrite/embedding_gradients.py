"""Add the gradient of an embedding's table into a gradient that is there already, where both are of one table.

In: a functional graph. Out: the same graph with ``x + embedding_dense_backward(grad, indices, …)`` as
``index_put(x, [indices], grad, accumulate=True)``: the rows that were looked up are added into ``x``, whose memory the result takes over.
No second table is filled with zeros, written and read again. Language models that share one table between their embedding and their last
layer do this in every step.

Rounding: an element is the sum of the same terms in another order, which for float32 and float64 keeps the error bound of a sum;
half precision rounds the parts before they are added, and stays as it is.
"""

from __future__ import annotations

import torch
from torch import fx

from ..context import CompileContext
from .engine import Editor, Match, Rule
from .fakes import is_row_major, same_size
from .patterns import Constant, Like, Operand, call

aten = torch.ops.aten

_EXACT = Like(dtypes=(torch.float32, torch.float64))
_GRADIENT = call(
    aten.embedding_dense_backward.default,
    Operand("grad"),
    Operand("indices", Like(dtypes=(torch.int64,))),
    padding_idx=Constant(holds=lambda index: index in (-1, None)),
    scale_grad_by_freq=False,
    others=True,
    name="gradient",
    like=_EXACT,
    only_user=True,
)


def _is_in_any_order(context: CompileContext) -> bool:
    """Whether colliding additions may come in any order."""
    return not torch.are_deterministic_algorithms_enabled()


def _are_of_one_table(match: Match, context: CompileContext) -> bool:
    """Whether the other summand is computed, and a table of the same kind as the gradient's."""
    if match["table"].op != "call_function" or match.val("grad").dim() != match.val("indices").dim() + 1:
        return False
    into, found = match.val("table"), match.val("gradient")
    if into.dtype is not found.dtype or into.device != found.device or into.dim() != found.dim():
        return False
    return all(map(same_size, into.shape, found.shape)) and is_row_major(into)


def _accumulate(match: Match, edit: Editor) -> fx.Node:
    table, gradient = match["table"], match["gradient"]
    # As early as both are there: what is looked up is smaller than a table.
    before = gradient if table < gradient else table.next
    return edit.call(aten.index_put.default, table, [match["indices"]], match["grad"], True, before=before)


RULES = (
    Rule(
        name="gradient_into_a_table",
        identity="x + scatter(zeros, rows) = scatter(x, rows): sums of the same terms in another order, in float32 and float64",
        pattern=call(aten.add.Tensor, Operand("table", _EXACT, only_user=True), _GRADIENT, commutes=True),
        check=_are_of_one_table,
        replace=_accumulate,
        when=_is_in_any_order,
    ),
)
