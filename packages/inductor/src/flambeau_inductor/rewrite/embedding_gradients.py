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
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from .fakes import fake_mode_of, quietly
from .joins import call
from .products import erase

aten = torch.ops.aten


def embedding_gradients(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every such sum; not where colliding additions must come in one order."""
    mode = fake_mode_of(gm.graph)
    if mode is None or torch.are_deterministic_algorithms_enabled():
        return False
    changed = False
    for node in list(gm.graph.nodes):
        for table, gradient in _summands(node):
            if _may_take_in(table, gradient):
                _accumulate(gm.graph, node, table, gradient, mode)
                changed = True
                break
    return changed


def _summands(node: fx.Node) -> list[tuple[fx.Node, fx.Node]]:
    """Both ways to read ``node`` as a sum, the later summand as what is added first."""
    if node.op != "call_function" or node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
        return []
    a, b = node.args
    if not isinstance(a, fx.Node) or not isinstance(b, fx.Node) or a is b:
        return []
    return [(a, b), (b, a)] if a < b else [(b, a), (a, b)]


def _may_take_in(table: fx.Node, gradient: fx.Node) -> bool:
    """Whether ``table`` is needed for this sum only, and ``gradient`` is that of an embedding's table of the same kind."""
    if gradient.target is not aten.embedding_dense_backward.default or len(gradient.users) != 1:
        return False
    if table.op != "call_function" or len(table.users) != 1:
        return False
    grad, indices, _, padding, scaled = gradient.args
    into, found, rows, at = (n.meta.get("val") for n in (table, gradient, grad, indices))
    if not all(isinstance(val, torch.Tensor) for val in (into, found, rows, at)) or rows.dim() != at.dim() + 1:
        return False
    if padding not in (-1, None) or scaled or at.dtype is not torch.int64 or not into.is_contiguous():
        return False
    alike = into.dtype is found.dtype and into.device == found.device and into.shape == found.shape
    return bool(alike and into.dtype in (torch.float32, torch.float64))


def _accumulate(graph: fx.Graph, total: fx.Node, table: fx.Node, gradient: fx.Node, mode: FakeTensorMode) -> None:
    grad, indices, *_ = gradient.args
    # As early as both are there: what is looked up is smaller than a table.
    before = gradient if table < gradient else table.next
    with quietly(mode):
        taken_in = call(graph, before, aten.index_put.default, table, [indices], grad, True)
    total.replace_all_uses_with(taken_in)
    erase(graph, total)
