"""Make one product of several small ones that share their right operand and need nothing from each other.

In: a functional graph. Out: the same graph with ``x_1 @ w``, ``x_2 @ w``, … replaced by rows of ``cat(x_1, x_2, …) @ w``: the
inputs of a recurrent cell at all steps, a head applied at each step, a weight shared by towers. The joined rows are a view where
the operands are consecutive parts of one tensor. As many are joined as may lie in memory at once.

Rounding: each element is still one sum over ``k`` of the same products, rounded once, as ``numerics="faithful"`` asks. The library
may choose other blocks for more rows, and so another order of that sum; it promises no equal bits across row counts anyway (eager
itself gives other last bits for a row that is computed in a larger batch), and the error bound does not depend on the order.
A deterministic mode asks that one program repeats its bits, which a larger product does as the small ones did.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import effects
from ..context import CompileContext
from ..passes.remove_dead import erase
from .fakes import bytes_of, fake_mode_of, insert_call, quietly, same_size
from .joins import Join, call, is_transpose, plan_join, window_of
from .products import (
    FEWEST,
    MOST_BYTES,
    Product,
    free_bytes,
    is_worth_it,
    products_of,
    saved_calls,
)

aten = torch.ops.aten

_ALIGNMENT = 16


def batch_products(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every set of products that pays."""
    mode = fake_mode_of(gm.graph)
    if mode is None:
        return False
    changed = False
    found = _by_operand(gm.graph)
    allowed = free_bytes(gm.graph, context) if found else 0
    for products in found:
        for group in _independent(gm.graph, products):
            for part in _within(group, allowed):
                changed = _batch(gm.graph, part, mode) or changed
    return changed


def _by_operand(graph: fx.Graph) -> list[list[Product]]:
    """Small products by what they share."""
    found: dict[Any, list[Product]] = {}
    small = [product for product in products_of(graph) if product.node.users and product.is_small()]
    outside = _seen_outside(graph) if len(small) >= FEWEST else set()
    for product in small:
        node = product.node
        if node in outside:
            continue
        right = ("t", product.right.args[0]) if is_transpose(product.right) else product.right
        found.setdefault((right, product.bias, tuple(sorted(node.kwargs.items()))), []).append(product)
    return [products for products in found.values() if len(products) >= FEWEST]


def _seen_outside(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose own memory is a result of the graph: the caller must not get a part of something larger."""
    (output,) = [node for node in graph.nodes if node.op == "output"]
    seen: set[fx.Node] = set()
    pending = list(output.all_input_nodes)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        returns = getattr(getattr(node.target, "_schema", None), "returns", ())
        if node.target is getitem or any(r.alias_info is not None for r in returns):
            pending.extend(node.all_input_nodes)
    return seen


def _independent(graph: fx.Graph, products: Sequence[Product]) -> list[list[Product]]:
    """The products by how many others (of these) lie on the longest way to them: no way leads between two of one group."""
    own = {product.node: product for product in products}
    depth: dict[fx.Node, int] = {}
    groups: dict[tuple[Any, ...], list[Product]] = {}
    for node in graph.nodes:
        level = max((depth[source] for source in node.all_input_nodes), default=0)
        product = own.get(node)
        if product is not None:
            rows = product.val.shape[0]
            # Rows of unknown number must all be that number, for the parts of the result to be found again.
            groups.setdefault((level, "" if isinstance(rows, int) else str(rows)), []).append(product)
            level += 1
        depth[node] = level
    return [group for group in groups.values() if len(group) >= FEWEST]


def _within(group: Sequence[Product], allowed: int) -> list[Sequence[Product]]:
    """``group`` in equal parts, the operands and results of each of which, all there at once, take at most ``allowed`` bytes."""
    held = sum(bytes_of(product.val) + bytes_of(product.left.meta["val"]) * _copies(product.left) for product in group)
    count = -(-len(group) // max(1, -(-held // max(allowed, 1))))
    return [part for n in range(0, len(group), count) if len(part := group[n : n + count]) >= FEWEST]


def _copies(left: fx.Node) -> int:
    """How often joining may hold an operand; a window of something lies there anyway."""
    return 1 if window_of(left) is not None else 2


def _batch(graph: fx.Graph, group: Sequence[Product], mode: FakeTensorMode) -> bool:
    """Make one product of ``group`` where that pays and the graph can be put into an order that allows it."""
    group, join = _plan(group)
    first = group[0]
    right = bytes_of(first.right.meta["val"])
    columns = first.val.shape[1]
    if not is_worth_it(saved_calls(len(group), right, first.val.device), join.copied):
        return False
    equal = all(same_size(product.val.shape[0], first.val.shape[0]) for product in group)
    if not equal and not all(isinstance(product.val.shape[0], int) for product in group):
        return False
    if not isinstance(columns, int) and (equal and not isinstance(first.val.shape[0], int)):
        return False
    needed = [product.left for product in group] + [part for part in (first.right, first.bias) if part is not None]
    before = make_room(graph, [product.node for product in group], needed)
    if before is None:
        return False
    joined = join.emit(graph, before, mode)
    operands = (joined, first.right) if first.bias is None else (first.bias, joined, first.right)
    with quietly(mode):
        target: Any = first.node.target
        product_node = call(graph, before, target, *operands, **first.node.kwargs)
        product_node.meta.update({k: v for k, v in first.node.meta.items() if k != "val"})
        parts = _parts(graph, before, product_node, group, equal)
    for product, part in zip(group, parts, strict=True):
        product.node.replace_all_uses_with(part)
        erase(graph, product.node)
    return True


def _plan(group: Sequence[Product]) -> tuple[list[Product], Join]:
    """The order in which the products are joined, and how."""
    ordered = list(group)
    windows = [window_of(product.left) for product in ordered]
    starts = [window.start for window in windows if window is not None]
    if len(starts) == len(ordered) and any(a > b for a, b in pairwise(starts)):
        ordered = [ordered[n] for n in sorted(range(len(ordered)), key=lambda n: starts[n])]
    return ordered, plan_join([product.left for product in ordered], 0)


def _parts(graph: fx.Graph, before: fx.Node, node: fx.Node, group: Sequence[Product], equal: bool) -> list[fx.Node]:
    """The results of ``group`` as views of the one product, contiguous as they were."""
    rows, columns = group[0].val.shape
    count = len(group)
    if equal:
        # As sizes that need no computation of their own; the fake results name each size as it was named before.
        stacked = aten.view.default(node.meta["val"], [count, rows, columns])
        vals = tuple(aten.select.int(stacked, 0, n) for n in range(count))
    else:
        sizes = [int(product.val.shape[0]) for product in group]
        vals = tuple(aten.split_with_sizes.default(node.meta["val"], sizes))
    if all(_is_aligned(val) for val in vals):
        # Pieces from the library: kernels that read them are the same for every piece. As windows of the product, each would
        # have its offset written into a kernel of its own.
        if equal:
            pieces = insert_call(graph, before, aten.unsafe_chunk.default, (node, count), vals)
        else:
            pieces = insert_call(graph, before, aten.unsafe_split_with_sizes.default, (node, sizes), vals)
        return [insert_call(graph, before, getitem, (pieces, n), val) for n, val in enumerate(vals)]
    if not equal:
        starts = [0, *accumulate(sizes)]
        return [call(graph, before, aten.slice.Tensor, node, 0, *ends) for ends in pairwise(starts)]
    shape = [count, rows if isinstance(rows, int) else -1, columns if isinstance(columns, int) else -1]
    whole = insert_call(graph, before, aten.view.default, (node, shape), stacked)
    return [call(graph, before, aten.select.int, whole, 0, n) for n in range(count)]


def _is_aligned(val: torch.Tensor) -> bool:
    """Whether ``val`` begins at a multiple of what kernels assume of a buffer's address."""
    step: Any = val.shape[1] if not isinstance(val.shape[0], int) else val.storage_offset()
    return isinstance(step, int) and step * val.dtype.itemsize % _ALIGNMENT == 0


def make_room(graph: fx.Graph, replaced: Sequence[fx.Node], needed: Iterable[fx.Node]) -> fx.Node | None:
    """The node before which one call can take the place of ``replaced``: the last of these, if nothing reads one earlier.

    Otherwise the first reader, and what ``needed`` depends on is moved before that; None where a move could be noticed.

    No way may lead from ``replaced`` to ``needed``. The order of everything else stays.
    """
    nodes = list(graph.nodes)
    position = {node: n for n, node in enumerate(nodes)}
    start = min(position[user] for node in replaced for user in node.users)
    # Not later than that: what the call reads would be kept in memory for nothing.
    start = min(start, max(position[node] for node in replaced))
    late: set[fx.Node] = set()
    pending = [node for node in needed if position[node] >= start]
    while pending:
        node = pending.pop()
        if node not in late:
            late.add(node)
            pending.extend(source for source in node.all_input_nodes if position[source] >= start)
    if not late:
        return nodes[start]
    end = max(position[node] for node in late)
    if not all(_may_move(node) for node in late) or any(_writes(node) for node in nodes[start:end]):
        return None
    if sum(bytes_of(node.meta["val"]) for node in late if not _is_view(node)) > MOST_BYTES:
        return None
    for node in sorted(late, key=lambda node: position[node]):
        nodes[start].prepend(node)
    return nodes[start]


def _may_move(node: fx.Node) -> bool:
    """Whether a call gives the same, and nothing else happens, wherever it stands after its operands."""
    if node.op != "call_function" or node.meta.get("unbacked_bindings"):
        return False
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__module__", "") == "_operator"
    return not effects.has_effect(target)


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _is_view(node: fx.Node) -> bool:
    returns = getattr(getattr(node.target, "_schema", None), "returns", ())
    return node.target is getitem or any(r.alias_info is not None for r in returns)
