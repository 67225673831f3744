"""Make one product of several that multiply the same rows by frozen weights, on a CPU.

In: a functional graph whose frozen inputs are marked (`constants.py`). Out: the same graph with ``x @ w_1``, ``x @ w_2``, … replaced by columns of ``x @ cat(w_1, w_2, …)``: queries, keys
and values of attention. The joined weight follows from frozen inputs, so that it is made and packed once. What reads the columns sees other strides; where something could
tell, the products stay as they are.

Measured on one core of a Xeon (Sapphire Rapids, torch 2.11): 128 rows by 768 x 2304 take 0.77 of the time of three products by 768 x 768, and 196 rows by 384 x 1536 0.79 of four by 384 x 384;
1,500 rows take as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from operator import getitem
from typing import Any

import torch
from attrs import frozen
from torch import fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from ..context import CompileContext
from ..devices import device_of
from ..passes.remove_dead import erase
from .batch_products import make_room
from .channels_last import STRIDE_READERS
from .constants import is_constant
from .fakes import fake_mode_of, insert_call, quietly, same_layout, values_of
from .joins import call
from .packed_products import is_exact
from .patterns import argument

aten = torch.ops.aten

#: Rows from which a product keeps the processor busy whatever its columns, and columns from which it does so whatever its rows.
_MOST_ROWS, _MOST_COLUMNS = 1024, 1024


@frozen
class _Group:
    """Products of ``left`` by ``rights``, with a bias each or with none."""

    nodes: tuple[fx.Node, ...]

    @property
    def left(self) -> Any:
        return self.nodes[0].args[-2]

    @property
    def rights(self) -> list[Any]:
        return [node.args[-1] for node in self.nodes]

    @property
    def biases(self) -> list[Any]:
        return [node.args[0] for node in self.nodes if node.target is aten.addmm.default]


def share_rows(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every set of products that pays."""
    mode = fake_mode_of(gm.graph)
    if mode is None or not is_exact(context):
        return False
    found: dict[Any, list[fx.Node]] = {}
    for node in gm.graph.nodes:
        if _may_join(node):
            found.setdefault((node.args[-2], node.target), []).append(node)
    changed = False
    for nodes in found.values():
        if len(nodes) > 1:
            with quietly(mode):
                changed = _join(gm.graph, _Group(tuple(nodes))) or changed
    return changed


def _may_join(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return False
    val = node.meta["val"]
    if val.dtype is not torch.float32 or not all(isinstance(size, int) for size in val.shape):
        return False
    libraries = device_of(val.device).libraries
    if not libraries.packs_weights or libraries.slow_products() or not node.users:
        return False
    rows, columns = val.shape
    bias: Any = node.args[0]
    if node.target is aten.addmm.default and (bias.meta["val"].dim() != 1 or not is_constant(bias)):
        return False
    return rows <= _MOST_ROWS and columns <= _MOST_COLUMNS and is_constant(node.args[-1])


def _join(graph: fx.Graph, group: _Group) -> bool:
    rows = group.nodes[0].meta["val"].shape[0]
    ends = [0, *accumulate(node.meta["val"].shape[1] for node in group.nodes)]
    whole = group.nodes[0].meta["val"].new_empty(rows, ends[-1])
    values: dict[fx.Node, Any] = {
        node: whole[:, start:end] for node, (start, end) in zip(group.nodes, pairwise(ends), strict=True)
    }
    if not _spread(graph, values):
        return False
    before = make_room(graph, group.nodes, [group.left, *group.rights, *group.biases])
    if before is None:
        return False
    transposed = [call(graph, before, aten.permute.default, right, [1, 0]) for right in group.rights]
    joined = call(graph, before, aten.cat.default, transposed, 0)
    operands = [group.left, call(graph, before, aten.permute.default, joined, [1, 0])]
    if group.biases:
        operands = [call(graph, before, aten.cat.default, group.biases, 0), *operands]
    product = insert_call(graph, before, group.nodes[0].target, tuple(operands), whole)
    product.meta.update({key: value for key, value in group.nodes[0].meta.items() if key != "val"})
    for node, (start, end) in zip(group.nodes, pairwise(ends), strict=True):
        piece = insert_call(graph, before, aten.slice.Tensor, (product, 1, start, end), values.pop(node))
        node.replace_all_uses_with(piece)
        erase(graph, node)
    for node, val in values.items():
        node.meta["val"] = val
    return True


def _spread(graph: fx.Graph, values: dict[fx.Node, Any]) -> bool:
    """Add what follows from the new ``values`` of some nodes; False where that could be told, or could not be computed."""
    for node in graph.nodes:
        if node in values or not any(source in values for source in node.all_input_nodes):
            continue
        target: Any = node.target
        if target is not getitem and (not isinstance(target, OpOverload) or _reads_strides(node, target)):
            return False
        result = _computed(node, values)
        if result is None:
            return False
        if not _alike(result, node.meta["val"]):
            values[node] = result
    return True


def _computed(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """The fake result of ``node``; None where it cannot be had, as of a view of what does not lie together."""
    target: Any = node.target
    try:
        return target(*values_of(node.args, values), **values_of(node.kwargs, values))
    except (RuntimeError, ValueError):
        return None


def _reads_strides(node: fx.Node, target: OpOverload) -> bool:
    name = target._schema.name.removeprefix("aten::")
    # Random numbers are dealt out in memory order; attention without dropout draws none.
    draws = torch.Tag.nondeterministic_seeded in target.tags
    if target is aten._scaled_dot_product_flash_attention_for_cpu.default:
        draws = argument(node, "dropout_p") != 0
    return name in STRIDE_READERS or draws or target._schema.is_mutable


def _alike(new: Any, old: Any) -> bool:
    pairs: Sequence[tuple[Any, Any]] = list(zip(pytree.tree_leaves(new), pytree.tree_leaves(old), strict=True))
    return all(same_layout(a, b) for a, b in pairs if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor))
