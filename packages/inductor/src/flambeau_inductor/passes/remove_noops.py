"""Drop calls that give back what they were given: views to the same shape, expands that expand nothing, double transposes.

Valid in, valid out. Only views and aliases are dropped (a copy is memory of its own), and only where sizes, strides, dtype and
device of result and operand agree, so no reader can tell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext

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


def same_layout(a: Any, b: Any) -> bool:
    """True when two fake tensors are known to have equal sizes, strides, dtype and device (no guard is added)."""
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)) or a.dim() != b.dim():
        return False
    if a.dtype is not b.dtype or a.device != b.device or a.layout is not b.layout or a.layout is not torch.strided:
        return False
    return all(_same(x, y) for x, y in zip((*a.shape, *a.stride()), (*b.shape, *b.stride()), strict=True))


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, int) and isinstance(y, int):
        return x == y
    if isinstance(x, torch.SymInt) and isinstance(y, torch.SymInt):
        return bool(x.node.expr == y.node.expr)
    return False


def _original(node: fx.Node) -> fx.Node | None:
    """The node that ``node`` is equal to, or None."""
    source = node.args[0] if node.args else None
    if not isinstance(source, fx.Node):
        return None
    if node.target in _SAME and _keeps_order(node) and same_layout(node.meta.get("val"), source.meta.get("val")):
        return source
    if node.target in _TRANSPOSES and source.target in _TRANSPOSES and source.op == "call_function":
        first, second = _order(source), _order(node)
        if first is not None and second is not None and [first[d] for d in second] == list(range(len(first))):
            return source.args[0] if isinstance(source.args[0], fx.Node) else None
    return None


def _keeps_order(node: fx.Node) -> bool:
    """A permutation of equal sizes and strides may still move elements; a slice of equal size starts at 0."""
    if node.target is aten.permute.default:
        order = _order(node)
        return order == list(range(len(order or ())))
    return True


def _order(node: fx.Node) -> list[int] | None:
    """The permutation a transpose does."""
    val = node.meta.get("val")
    if not isinstance(val, torch.Tensor):
        return None
    rank = val.dim()
    order = list(range(rank))
    if node.target is aten.permute.default:
        dims: Any = node.args[1]
        return [int(d) % rank for d in dims]
    if node.target is aten.t.default:
        return order[::-1]
    first, second = (int(d) % rank for d in node.args[1:3])
    order[first], order[second] = order[second], order[first]
    return order


def remove_noops(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Replace each such call by its operand."""
    changed = False
    for node in list(gm.graph.nodes):
        if node.op != "call_function":
            continue
        original = _original(node)
        # The result of a graph keeps its own identity: an output that is an input would be handed back as that very tensor.
        if original is None or any(user.op == "output" for user in node.users):
            continue
        # Such an op counts from the beginning of a storage; the operand may start elsewhere in its own.
        if any(user.target in _STRIDED for user in node.users):
            continue
        node.replace_all_uses_with(original)
        gm.graph.erase_node(node)
        changed = True
    return changed
