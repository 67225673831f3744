"""Drop calls that give back what they were given: views to the same shape, expands that expand nothing, double transposes.

Valid in, valid out. Only views and aliases are dropped (a copy is memory of its own), and only where sizes, strides, dtype and
device of result and operand agree, so no reader can tell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..rewrite.engine import Editor, Match, Rule
from ..rewrite.fakes import same_layout
from ..rewrite.patterns import Operand, argument, call

aten = torch.ops.aten

_SAME = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten._unsafe_view.default,
        aten.expand.default,
        aten.permute.default,
        aten.alias.default,
        aten.detach.default,
        aten.slice.Tensor,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.squeeze.default,
    }
)
_STRIDED = frozenset({aten.as_strided.default, aten.as_strided_copy.default, aten.as_strided_scatter.default})
_TRANSPOSES = frozenset({aten.t.default, aten.transpose.int, aten.permute.default})


def _is_unseen(node: fx.Node) -> bool:
    """Whether no reader of ``node`` could tell it from an equal tensor."""
    # The result of a graph keeps its own identity: an output that is an input would be handed back as that very tensor.
    # An op in strides counts from the beginning of a storage; the operand may start elsewhere in its own.
    return not any(user.op == "output" or user.target in _STRIDED for user in node.users)


def _changes_nothing(match: Match, context: CompileContext) -> bool:
    node = match.root
    # A permutation of equal sizes and strides may still move elements; a slice of equal size starts at 0.
    if node.target is aten.permute.default and (order := _order(node)) != list(range(len(order or ()))):
        return False
    return same_layout(node.meta.get("val"), match["source"].meta.get("val")) and _is_unseen(node)


def _undoes(match: Match, context: CompileContext) -> bool:
    first, second = _order(match["first"]), _order(match.root)
    if first is None or second is None or not _is_unseen(match.root):
        return False
    return [first[d] for d in second] == list(range(len(first)))


def _order(node: fx.Node) -> list[int] | None:
    """The permutation a transpose does."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return None
    rank = val.dim()
    order = list(range(rank))
    if node.target is aten.permute.default:
        dims: Any = argument(node, "dims")
        return [int(d) % rank for d in dims]
    if node.target is aten.t.default:
        return order[::-1]
    first, second = (int(argument(node, name)) % rank for name in ("dim0", "dim1"))
    order[first], order[second] = order[second], order[first]
    return order


def _source(match: Match, edit: Editor) -> fx.Node:
    source: fx.Node = match["source"]
    return source


RULES = (
    Rule(
        name="same_layout",
        identity="a view with the sizes and strides of its operand shows the elements of its operand",
        pattern=call(_SAME, Operand("source"), others=True),
        check=_changes_nothing,
        replace=_source,
    ),
    Rule(
        name="two_transposes",
        identity="x.permute(p).permute(q) = x where p[q[d]] = d for every dimension d",
        pattern=call(_TRANSPOSES, call(_TRANSPOSES, Operand("source"), name="first", others=True), others=True),
        check=_undoes,
        replace=_source,
    ),
)
