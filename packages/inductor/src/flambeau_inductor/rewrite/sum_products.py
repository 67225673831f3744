"""Make one product of a sum of small ones: ``a_1 @ b_1 + a_2 @ b_2 + …`` is ``cat(a_1, a_2, …) @ cat(b_1, b_2, …)``.

In: a functional graph. Out: the same graph in which sums of products (the gradient of a weight that a loop uses at every step) are
one product, if what is copied is less than the results that are no longer written, read and added.

Rounding: in float32 and float64 the terms of one sum are added in another order, inside the library's product, whose error bound for
the whole sum is no larger than that of the separate sums. In half precision eager rounds every partial product to 16 bits, one
product rounds once: nearer to the true value, but not what eager gives, so that needs ``numerics="fast"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import define, field
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..passes.remove_dead import erase
from .fakes import bytes_of, fake_mode_of, quietly, same_size
from .joins import Join, call, is_transpose, plan_join, window_of
from .products import FEWEST, Product, is_worth_it, read_product, saved_calls

aten = torch.ops.aten


def sum_products(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every sum that pays."""
    mode = fake_mode_of(gm.graph)
    if mode is None:
        return False
    sums = _Sums(gm.graph, mode, context.config.numerics == "fast")
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=aten.add.Tensor):
        if _is_sum(node) and not any(_continues(node, user) for user in node.users):
            changed = sums.rewrite(node) or changed
    return changed


def _is_sum(node: fx.Node) -> bool:
    """Whether ``node`` adds two tensors of its own size and type."""
    if node.op != "call_function" or node.target is not aten.add.Tensor or node.kwargs.get("alpha", 1) != 1:
        return False
    return len(node.args) == 2 and all(isinstance(part, fx.Node) and _alike(part, node) for part in node.args)


def _alike(part: Any, whole: fx.Node) -> bool:
    a, b = part.meta.get("val"), whole.meta.get("val")
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dim() != 2 or b.dim() != 2:
        return False
    return a.dtype is b.dtype and a.device == b.device and all(map(same_size, a.shape, b.shape))


def _continues(node: fx.Node, user: fx.Node) -> bool:
    """Whether ``node`` is a part of the sum ``user`` and of nothing else."""
    return len(node.users) == 1 and _is_sum(user) and user.args[0] is not user.args[1]


@define
class _Sums:
    graph: fx.Graph
    mode: FakeTensorMode
    fast: bool
    #: Matrices that were joined before: which (without their transposes) and how -> in which order, and to what.
    joined: dict[tuple[Any, ...], tuple[tuple[fx.Node, ...], fx.Node]] = field(factory=dict)

    def rewrite(self, root: fx.Node) -> bool:
        """Replace the products among the terms of ``root`` by one, if there are enough and it pays."""
        terms = self._terms(root)
        products = [p for p in map(read_product, terms) if p is not None and p.bias is None and len(p.node.users) == 1]
        if len(products) < FEWEST or not (self.fast or products[0].val.dtype in (torch.float32, torch.float64)):
            return False
        products = self._ordered(products)
        lefts, rights = [p.left for p in products], [p.right for p in products]
        left, right = self._plan(lefts, 1), self._plan(rights, 0)
        copied = sum(plan.copied for plan in (left, right) if isinstance(plan, Join))
        val, result = products[0].val, root.meta["val"]
        if len(products) == len(terms) and not all(map(same_size, val.stride(), result.stride())):
            return False  # no sum is left that could write another layout
        # A separate product writes its result, and the sum reads it.
        if not is_worth_it(saved_calls(len(products), 2 * bytes_of(val), val.device), copied):
            return False
        operands = (self._emit(left, lefts, 1, root), self._emit(right, rights, 0, root))
        with quietly(self.mode):
            total = call(self.graph, root, aten.mm.default, *operands)
            total.meta.update({k: v for k, v in products[0].node.meta.items() if k != "val"})
            chosen = {product.node for product in products}
            for term in terms:
                if term not in chosen:
                    total = call(self.graph, root, aten.add.Tensor, total, term)
        # The layout of a sum is that of its first term, and the terms have another order now.
        total.meta["val"] = result
        root.replace_all_uses_with(total)
        erase(self.graph, root)
        return True

    def _terms(self, root: fx.Node) -> list[fx.Node]:
        """What is added, through partial sums that nothing else reads."""
        terms: list[fx.Node] = []
        pending: list[tuple[fx.Node, Any]] = [(root, part) for part in root.args]
        while pending:
            user, part = pending.pop()
            if _is_sum(part) and _continues(part, user):
                pending.extend((part, source) for source in part.args)
            else:
                terms.append(part)
        return terms[::-1]

    def _ordered(self, products: list[Product]) -> list[Product]:
        """The order of an operand that is there already, or that needs no copy."""
        for side, along in (("left", 1), ("right", 0)):
            nodes = [getattr(product, side) for product in products]
            known = self.joined.get(_key(nodes, along))
            if known is not None and len(known[0]) == len(set(known[0])) == len(products):
                place = {node: n for n, node in enumerate(known[0])}
                order = [place[name] for name in _names(nodes)]
                return [product for _, product in sorted(zip(order, products, strict=True), key=lambda pair: pair[0])]
        for side in ("left", "right"):
            windows = [window_of(_source(getattr(product, side))) for product in products]
            starts = [window.start for window in windows if window is not None]
            if len(starts) == len(products):
                return [product for _, product in sorted(zip(starts, products, strict=True), key=lambda pair: pair[0])]
        return products

    def _plan(self, nodes: Sequence[fx.Node], along: int) -> Join | fx.Node:
        known = self.joined.get(_key(nodes, along))
        if known is not None and known[0] == _names(nodes):
            return known[1]
        return plan_join(nodes, along)

    def _emit(self, plan: Join | fx.Node, nodes: Sequence[fx.Node], along: int, before: fx.Node) -> fx.Node:
        if isinstance(plan, fx.Node):
            return plan
        result = plan.emit(self.graph, before, self.mode)
        self.joined[_key(nodes, along)] = (_names(nodes), result)
        return result


def _names(nodes: Sequence[fx.Node]) -> tuple[fx.Node, ...]:
    """The nodes, or what they transpose if all do: equal transposes may be several nodes."""
    return tuple(map(_source, nodes)) if all(map(is_transpose, nodes)) else tuple(nodes)


def _key(nodes: Sequence[fx.Node], along: int) -> tuple[Any, ...]:
    return frozenset(_names(nodes)), all(map(is_transpose, nodes)), along


def _source(node: fx.Node) -> fx.Node:
    """What a transpose transposes."""
    return node.args[0] if is_transpose(node) else node
