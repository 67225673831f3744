"""What of a backward is a multiple of the gradient that comes in: one number times what is known before that number is.

In: the joint graph of forward and backward. Out: for each node that depends on incoming gradients, the one that it is a multiple of. A number must not only
be a factor of every element, whatever the other values are: with 1 in its place everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

#: Ops whose result is a multiple where their first argument is one and no other.
_OF_FIRST = frozenset(
    {
        aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.expand.default, aten.squeeze.dim, aten.squeeze.default,
        aten.unsqueeze.default, aten.permute.default, aten.transpose.int, aten.t.default, aten.slice.Tensor, aten.select.int, aten.clone.default,
        aten.alias.default, aten._to_copy.default, aten.neg.default, aten.sum.default, aten.sum.dim_IntList, aten.mul.Scalar,
        aten.div.Scalar, aten.div.Tensor, aten.nll_loss_backward.default, aten._log_softmax_backward_data.default,
        aten.tanh_backward.default,
        aten.sigmoid_backward.default,
    }
)  # fmt: skip
#: Where one of their arguments is.
_OF_ONE = frozenset({aten.mul.Tensor, aten.mm.default})
#: Where all are; constants that are zero count as such.
_OF_ALL = {aten.add.Tensor: 0, aten.sub.Tensor: 0, aten.where.self: 1, aten.where.ScalarOther: 1, aten.where.ScalarSelf: 1}  # fmt: skip
#: Ops that make a tensor of one value: where that is among the arguments.
_CONSTANTS = {aten.full.default: 1, aten.scalar_tensor.default: 0, aten.full_like.default: 1, aten.new_full.default: 2}  # fmt: skip
_ZEROS = (aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)


def incoming(graph: fx.Graph) -> list[fx.Node]:
    """The gradients that come in."""
    return [node for node in graph.find_nodes(op="placeholder") if node.meta.get("backward")]


def multiples(graph: fx.Graph) -> Mapping[fx.Node, fx.Node | None]:
    """Node -> what it is a multiple of; None for one that depends on incoming gradients in another way. Others depend on none."""
    found: dict[fx.Node, fx.Node | None] = {node: node for node in incoming(graph)}
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        factors = {found[a] for a in node.all_input_nodes if a in found}
        if factors:
            (factor,) = factors if len(factors) == 1 else (None,)
            found[node] = factor if factor is not None and _is_multiple(node, found) else None
    return found


def _is_multiple(node: fx.Node, found: Mapping[fx.Node, Any]) -> bool:
    """Whether ``node`` has the factor that its arguments have."""
    given = [a in found for a in node.args if isinstance(a, fx.Node)]
    if any(value in found for value in node.kwargs.values() if isinstance(value, fx.Node)):
        return False
    if node.target in _OF_FIRST:
        return node.args[0] in found and sum(given) == 1
    if node.target in _OF_ONE:
        return sum(given) == 1
    start = _OF_ALL.get(node.target)
    if start is None or any(a in found for a in node.args[:start] if isinstance(a, fx.Node)):
        return False
    return all(a in found or _is_zero(a) for a in node.args[start:])


def _is_zero(value: Any) -> bool:
    if not isinstance(value, fx.Node):
        return isinstance(value, int | float) and value == 0
    place: Any = _CONSTANTS.get(value.target)
    return value.target in _ZEROS or (place is not None and value.args[place] == 0)
