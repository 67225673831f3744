"""Products whose elements are each one sum in the order of its terms, and attention made of them: for ``batch_invariant`` on a CPU.

In: a functional graph. Out: the same graph with ``flambeau::ordered_products`` in the place of the library's products of floats, and attention of the library written out:
scores, shares and their gradients in float32, rounded where the library rounds its results. Lowering refuses what is left that may depend on how many rows there
are (``lowering/row_by_row.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_runtime.ordered import ordered_products

from ..context import CompileContext
from .fakes import fake_mode_of, insert_call, insert_run, laid_out, quietly, same_size

aten = torch.ops.aten


def order_products(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite ``gm``; whether anything was."""
    mode = fake_mode_of(gm.graph)
    done = False
    for node in list(gm.graph.nodes):
        write = _WRITERS.get(node.target) if node.op == "call_function" else None
        if write is not None and mode is not None and _is_of_floats(node):
            done |= write(_Writer(gm.graph, node, mode))
    if done:
        gm.graph.eliminate_dead_code()
    return done


def _is_of_floats(node: fx.Node) -> bool:
    vals = [part.meta["val"] for part in node.all_input_nodes if isinstance(part.meta.get("val"), torch.Tensor)]
    return bool(vals) and all(val.dtype.is_floating_point and val.dtype.itemsize > 1 for val in vals[:2])


@frozen
class _Writer:
    """Makes nodes in front of one call, and puts them in its place."""

    graph: fx.Graph
    node: fx.Node
    mode: FakeTensorMode

    def call(self, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        """A new call with the fake result of running it."""
        return insert_run(self.graph, self.node, target, *args, **kwargs)

    def product(self, x: Any, y: Any, bias: Any = None, beta: float = 1, alpha: float = 1) -> fx.Node:
        """A product of matrices, or of several."""
        a, b = x.meta["val"], y.meta["val"]
        with quietly(self.mode):
            val = a.new_empty((*a.shape[:-1], b.shape[-1]))
        return insert_call(self.graph, self.node, ordered_products(), (x, y, bias, float(beta), float(alpha)), val)

    def argument(self, place: int, name: str, default: Any) -> Any:
        """An argument of the call, by position or name."""
        args = self.node.args
        return args[place] if place < len(args) else self.node.kwargs.get(name, default)

    def put(self, result: fx.Node) -> bool:
        """``result`` in the place of the call."""
        self.node.replace_all_uses_with(self.like(result, self.node.meta["val"]))
        self.graph.erase_node(self.node)
        return True

    def put_parts(self, *results: fx.Node) -> bool:
        """Each of them in the place of a part of the call's result."""
        for user in list(self.node.users):
            assert user.target is getitem
            result = results[user.args[1]]
            user.replace_all_uses_with(self.like(result, user.meta["val"]))
            self.graph.erase_node(user)
        self.graph.erase_node(self.node)
        return True

    def like(self, result: fx.Node, val: torch.Tensor) -> fx.Node:
        """``result`` in the type and layout of what it stands for."""
        if result.meta["val"].dtype is not val.dtype:
            result = self.call(aten._to_copy.default, result, dtype=val.dtype)
        return laid_out(self.call, result, val)

    def wide(self, operand: fx.Node) -> fx.Node:
        """An operand in float32, or in float64 if it is that."""
        narrow = operand.meta["val"].dtype in (torch.float16, torch.bfloat16)
        return self.call(aten._to_copy.default, operand, dtype=torch.float32) if narrow else operand

    def turned(self, operand: fx.Node) -> fx.Node:
        """Its matrices transposed."""
        return self.call(aten.transpose.int, operand, -2, -1)


def _plain(w: _Writer) -> bool:
    return w.put(w.product(*w.node.args))


def _with_bias(w: _Writer) -> bool:
    bias, x, y = w.node.args
    beta, alpha = w.node.kwargs.get("beta", 1), w.node.kwargs.get("alpha", 1)
    if not all(isinstance(number, int | float) for number in (beta, alpha)):
        return False
    if w.node.target is aten.addmv.default:
        if bias.meta["val"].dim() == 1:
            bias = w.call(aten.unsqueeze.default, bias, 1)
        product = w.product(x, w.call(aten.unsqueeze.default, y, 1), bias, beta, alpha)
        return w.put(w.call(aten.squeeze.dim, product, 1))
    return w.put(w.product(x, y, bias, beta, alpha))


def _with_vector(w: _Writer) -> bool:
    x, y = w.node.args
    return w.put(w.call(aten.squeeze.dim, w.product(x, w.call(aten.unsqueeze.default, y, 1)), 1))


def _of_vectors(w: _Writer) -> bool:
    x, y = w.node.args
    product = w.product(w.call(aten.unsqueeze.default, x, 0), w.call(aten.unsqueeze.default, y, 1))
    return w.put(w.call(aten.squeeze.dim, w.call(aten.squeeze.dim, product, 1), 0))


def _scaled(w: _Writer, scores: fx.Node, query: fx.Node) -> fx.Node:
    """Times the scale; without one, by the square root of the width: in one way whether that is known now or not."""
    given = w.node.kwargs.get("scale")
    if given is None:
        width = w.call(aten.sum.dim_IntList, w.call(aten.ones_like.default, query), [-1], True)
        return w.call(aten.mul.Tensor, scores, w.call(aten.rsqrt.default, width))
    return w.call(aten.mul.Tensor, scores, given)


def _scores(w: _Writer, query: fx.Node, key: fx.Node, is_causal: bool) -> fx.Node:
    """What the softmax takes: scaled products, and what a mask makes of them."""
    scores = _scaled(w, w.product(query, w.turned(key)), query)
    mask: Any = w.node.kwargs.get("attn_mask")
    hidden = w.call(aten.full_like.default, scores, -math.inf)
    if is_causal:
        kept = w.call(aten.tril.default, w.call(aten.ones_like.default, scores, dtype=torch.bool))
        scores = w.call(aten.where.self, kept, scores, hidden)
    if mask is not None:
        if mask.meta["val"].dtype is torch.bool:
            scores = w.call(aten.where.self, mask, scores, hidden)
        else:
            scores = w.call(aten.add.Tensor, scores, mask)
    return scores


def _shares(w: _Writer, scores: fx.Node, total: fx.Node) -> fx.Node:
    """Of each row's sum, whose logarithm ``total`` is; of rows of which nothing takes part they are 0."""
    endless = w.call(aten.eq.Scalar, total, -math.inf)
    total = w.call(aten.where.self, endless, w.call(aten.zeros_like.default, total), total)
    return w.call(aten.exp.default, w.call(aten.sub.Tensor, scores, w.call(aten.unsqueeze.default, total, -1)))


def _is_plain(w: _Writer, query: fx.Node, key: fx.Node, dropout: Any) -> bool:
    """Whether it is attention without dropout, with as many heads of keys as of queries."""
    a, b = query.meta["val"], key.meta["val"]
    return dropout == 0 and a.dim() == b.dim() == 4 and same_size(a.shape[1], b.shape[1])


def _attention(w: _Writer) -> bool:
    query, key, value = (w.node.args[n] for n in range(3))
    if not _is_plain(w, query, key, w.argument(3, "dropout_p", 0)):
        return False
    query, key, value = (w.wide(operand) for operand in (query, key, value))
    scores = _scores(w, query, key, bool(w.argument(4, "is_causal", False)))
    total = w.call(aten.logsumexp.default, scores, [-1])
    return w.put_parts(w.product(_shares(w, scores, total), value), total)


def _attention_backward(w: _Writer) -> bool:
    slope, query, key, value, out, total, dropout, is_causal = w.node.args
    if not _is_plain(w, query, key, dropout):
        return False
    slope, query, key, value, out = (w.wide(operand) for operand in (slope, query, key, value, out))
    shares = _shares(w, _scores(w, query, key, bool(is_causal)), total)
    of_shares = w.product(slope, w.turned(value))
    common = w.call(aten.sum.dim_IntList, w.call(aten.mul.Tensor, slope, out), [-1], True)
    of_scores = w.call(aten.mul.Tensor, shares, w.call(aten.sub.Tensor, of_shares, common))
    of_scores = _scaled(w, of_scores, query)
    return w.put_parts(
        w.product(of_scores, key),
        w.product(w.turned(of_scores), query),
        w.product(w.turned(shares), slope),
    )


_WRITERS: dict[Any, Callable[[_Writer], bool]] = {
    aten.mm.default: _plain,
    aten.bmm.default: _plain,
    aten.addmm.default: _with_bias,
    aten.baddbmm.default: _with_bias,
    aten.addmv.default: _with_bias,
    aten.mv.default: _with_vector,
    aten.dot.default: _of_vectors,
    aten.vdot.default: _of_vectors,
    aten._scaled_dot_product_flash_attention_for_cpu.default: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward,
}
