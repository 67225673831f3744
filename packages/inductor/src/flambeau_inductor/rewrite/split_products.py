"""Compute a product of few rows as several over parts of what is summed over, side by side.

In: a functional graph. Out: the same graph with ``a @ b`` as ``a_1 @ b_1 + a_2 @ b_2 + …`` where the library would keep only a part
of the GPU busy: the parts are one batched product, and the kernel that reads the result adds them up.

Rounding: in float32, each element is a sum of the same products in another order; the error bound of a sum in parts is no larger.
(The library itself adds in parts for such sizes, in a second kernel.) Products of 16-bit numbers stay: the parts would be rounded.
"""

from __future__ import annotations

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..context import CompileContext
from ..devices import device_facts
from .bias import is_finished_by_kernels
from .fakes import fake_mode_of, quietly
from .joins import call, is_transpose
from .products import Product, erase, free_bytes, read_product

aten = torch.ops.aten

#: So many parts, each of at least so many terms, for products of at most so many rows.
PARTS, FEWEST_TERMS, MOST_ROWS = 4, 128, 64
#: Rows and columns that one multiprocessor takes at a time in the library's kernels for such products.
_TILE = 32


def split_products(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every such product, if its parts may lie in memory at once."""
    mode = fake_mode_of(gm.graph)
    if mode is None or not context.config.triton_kernels:
        return False
    allowed = free_bytes(gm.graph, context)
    found = [product for product in map(read_product, gm.graph.nodes) if product is not None and _is_narrow(product)]
    views: dict[fx.Node, fx.Node] = {}
    for product in found:
        if PARTS * product.val.numel() * product.val.dtype.itemsize <= allowed:
            _split(gm.graph, product, mode, views)
    return bool(found)


def _is_narrow(product: Product) -> bool:
    """Whether the library's blocks of the result are fewer than multiprocessors, and generated kernels read it."""
    val, left, right = product.val, product.left.meta["val"], product.right.meta["val"]
    if product.bias is not None or val.device.type != "cuda" or val.dtype is not torch.float32:
        return False
    sizes = (*val.shape, left.shape[1])
    if not all(isinstance(size, int) for size in sizes):
        return False
    rows, columns, terms = sizes
    blocks = -(-rows // _TILE) * -(-columns // _TILE)
    if not 1 < rows <= MOST_ROWS or terms % PARTS or terms < PARTS * FEWEST_TERMS:
        return False
    if blocks > device_facts(val.device).multiprocessors or not is_finished_by_kernels(product.node):
        return False
    dense = right.t() if is_transpose(product.right) else right
    return bool(left.is_contiguous() and dense.is_contiguous())


def _split(graph: fx.Graph, product: Product, mode: FakeTensorMode, views: dict[fx.Node, fx.Node]) -> None:
    node, terms = product.node, product.left.meta["val"].shape[1]
    rows, columns = product.val.shape
    each = terms // PARTS
    with quietly(mode):
        left = call(graph, node, aten.view.default, product.left, [rows, PARTS, each])
        left = call(graph, node, aten.permute.default, left, [1, 0, 2])
        right = views.get(product.right)
        if right is None:
            right = views[product.right] = _parts_of(graph, product.right, columns, each)
        parts = call(graph, node, aten.bmm.default, left, right)
        first, *others = (call(graph, node, aten.select.int, parts, 0, n) for n in range(PARTS))
        for other in others:
            first = call(graph, node, aten.add.Tensor, first, other)
    node.replace_all_uses_with(first)
    erase(graph, node)


def _parts_of(graph: fx.Graph, right: fx.Node, columns: int, each: int) -> fx.Node:
    """The right operand as a batch of its rows, as a view; right after the operand, for all its products to share."""
    after = right.next
    if is_transpose(right):
        view = call(graph, after, aten.view.default, right.args[0], [columns, PARTS, each])
        return call(graph, after, aten.permute.default, view, [1, 2, 0])
    return call(graph, after, aten.view.default, right, [PARTS, each, columns])
