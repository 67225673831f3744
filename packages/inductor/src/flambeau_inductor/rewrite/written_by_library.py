"""Attention that a program writes out as the library's attention, where it is that and the library is faster than templates.

In: the products, as ``bmm`` takes them, and what lies between them, as rewrites of attention that is written out found it. Out: calls of cuDNN's attention on heads apart, (batch, heads, rows,
width), and their results as ``bmm`` gives them. Scores and shares are not rounded in between as the program rounds them, which needs ``numerics="fast"``: results are nearer to exact ones
than eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from attrs import frozen
from torch import fx

from ..context import CompileContext
from ..lowering.library_attention import LibraryCase, written_case
from ..lowering.trial import asked
from .joint_calls import JointEditor
from .library_attention import attention, gradients, is_aligned, is_faster, takes_heads

aten = torch.ops.aten

#: What keeps the order of elements, if it keeps their number.
_SAME_ORDER = frozenset((aten.view.default, aten._unsafe_view.default, aten.expand.default, aten.clone.default))
_Call = Callable[..., fx.Node]


def case_of_written(
    gm: fx.GraphModule | None, place: fx.Node, context: CompileContext, attend: Sequence[Any], *gradient: Any
) -> LibraryCase | None:
    """What an ``ATTEND`` of these operands would be, and its gradient of which the graphs are given; None where the library does not have that, or is slower."""
    queries: Any = attend[0]
    val = queries.meta["val"]
    if context.config.numerics != "fast" or not takes_heads(val, context):
        return None
    case = asked(gm, place, written_case, context, *attend, *gradient)
    return case if case is not None and is_faster(case, val.device, is_written=True) else None


def library_result(call: _Call, case: LibraryCase, product: fx.Node, value: Any) -> fx.Node:
    """What stands for the last product of attention without a gradient; ``product`` is its first."""
    (out,) = attention(call, case, _heads_of(call, case, product, value), with_rows=False)
    return _as_matrices(call, out)


@frozen
class LibraryTraining:
    """Makes the calls of one attention with a gradient: ``early`` those of the forward, in front of what they replace."""

    case: LibraryCase
    early: JointEditor
    qkv: tuple[fx.Node, fx.Node, fx.Node]
    results: tuple[fx.Node, ...]

    @classmethod
    def begin(cls, early: JointEditor, case: LibraryCase, product: fx.Node, value: Any) -> LibraryTraining:
        """With its forward."""
        qkv = _heads_of(early.call, case, product, value)
        return cls(case, early, qkv, attention(early.call, case, qkv, with_rows=True))

    def result(self) -> fx.Node:
        """What stands for the last product."""
        return _as_matrices(self.early.call, self.results[0])

    def gradients(self, edit: JointEditor, grad: Any) -> list[fx.Node]:
        """What stands for the gradients of queries, of keys as the first product takes them, and of values."""
        given = _apart(edit.call, grad, self.case.sizes[1])
        dq, dk, dv = gradients(edit, self.case, self.qkv, self.results, given)
        turned = edit.call(aten.transpose.int, _as_matrices(edit.call, dk), 1, 2)
        of_keys = edit.call(aten.clone.default, turned, memory_format=torch.contiguous_format)
        return [_as_matrices(edit.call, dq), of_keys, _as_matrices(edit.call, dv)]


def _heads_of(call: _Call, case: LibraryCase, product: fx.Node, value: Any) -> tuple[fx.Node, fx.Node, fx.Node]:
    """Queries, keys and values with heads apart."""
    q, k = product.args
    heads = case.sizes[1]
    return (
        _aligned(call, _apart(call, q, heads)),
        _aligned(call, _keys_apart(call, k, heads)),
        _aligned(call, _apart(call, value, heads)),
    )


def _apart(call: _Call, node: Any, heads: int) -> fx.Node:
    """(batch times heads, rows, columns) as (batch, heads, rows, columns): the tensor that it was made from, if that has the same elements in the same order."""
    lanes, rows, columns = node.meta["val"].shape
    shape = (lanes // heads, heads, rows, columns)
    found, seen = None, node
    while seen.target in _SAME_ORDER and seen.meta["val"].numel() == seen.args[0].meta["val"].numel():
        seen = seen.args[0]
        if tuple(seen.meta["val"].shape) == shape:
            found = seen
    return call(aten.view.default, node, list(shape)) if found is None else found


def _keys_apart(call: _Call, node: Any, heads: int) -> fx.Node:
    """The same of keys, (batch times heads, width, keys), as (batch, heads, keys, width)."""
    if _swaps_last(node):
        return _apart(call, node.args[0], heads)
    found = _apart(call, node, heads)
    source: Any = found.args[0]
    return source if _swaps_last(found) else call(aten.transpose.int, found, 2, 3)


def _swaps_last(node: fx.Node) -> bool:
    """Whether a call exchanges the last two dimensions."""
    dims: Any = node.args[1:]
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    rank = node.meta["val"].dim()
    if node.target is aten.transpose.int:
        return {dim % rank for dim in dims} == {rank - 2, rank - 1}
    return node.target is aten.permute.default and list(dims[0]) == [*range(rank - 2), rank - 1, rank - 2]


def _aligned(call: _Call, node: fx.Node) -> fx.Node:
    """``node``, or a copy of it that the library takes."""
    if is_aligned(node.meta["val"]):
        return node
    return call(aten.clone.default, node, memory_format=torch.contiguous_format)


def _as_matrices(call: _Call, node: fx.Node) -> fx.Node:
    batch, heads, rows, width = node.meta["val"].shape
    whole = call(aten.clone.default, node, memory_format=torch.contiguous_format)
    return call(aten._unsafe_view.default, whole, [batch * heads, rows, width])
