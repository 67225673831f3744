"""Take softmaxes apart where the backward reads them, so that numbers of a row can be saved in the place of the row.

In: the joint graph of forward and backward, before it is cut in two. Out: the same graph, where ``log_softmax(x)`` is
``x - max - log(sum(exp(x - max)))`` in the arithmetic of the kernels, step by step, with the same roundings. What is saved is decided by the cut:
the largest element and the sum of each row together with ``x``, from which the backward computes its elements again, or the result as before.
The first is what the loss of a language model needs: its logits are in memory anyway, often in half precision, and a second tensor of their size
would be written for the backward alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from ..devices import device_of
from ..expr import SymbolTable, UnsupportedExpression
from ..lowering.values import compute_dtype
from ..ops.dtypes import HALVES
from .fakes import bytes_of, fake_mode_of, quietly, same_layout
from .joins import call

aten = torch.ops.aten

_SOFTMAXES = (aten._softmax.default, aten._log_softmax.default)
_TYPES = (*HALVES, torch.float32, torch.float64)
#: What changes no number but its type or its place.
_CASTS = (aten._to_copy.default, aten.view.default, aten._unsafe_view.default, aten.transpose.int, aten.permute.default)
#: The note on what follows by subtractions; the cut of autograd reads it.
FOLLOWS = "follows"
#: Of what a node says beside its result, what does not hold of the steps.
_OWN = ("val", "static")


def open_softmaxes(graph: fx.Graph, context: CompileContext) -> dict[fx.Node, fx.Node]:
    """Rewrite ``graph``. Returns what stands for each node that was taken apart.

    The results of logarithms are marked ``meta["follows"]``: where that takes nearly the same bytes, the cut should save what they follow from.
    """
    mode = fake_mode_of(graph)
    if mode is None:
        return {}
    opened: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if (
            node.op == "call_function"
            and node.target in _SOFTMAXES
            and _may_open(node, context)
            and _pays(node, context)
        ):
            with quietly(mode):
                result = _open(graph, node)
            if result is not None:
                opened[node] = result
                node.replace_all_uses_with(result)
                graph.erase_node(node)
    return opened


def _may_open(node: fx.Node, context: CompileContext) -> bool:
    """Whether kernels are generated for the steps, of rows that are known to have elements. A program may have said of the op itself whether it is saved."""
    source, dim = node.args[0], node.args[1]
    val: Any = source.meta.get("val") if isinstance(source, fx.Node) else None
    if not isinstance(val, torch.Tensor) or val.dtype not in _TYPES or val.dim() == 0 or not isinstance(dim, int):
        return False
    if (
        any(node.meta.get(note) for note in ("backward", "refused", "checks"))
        or node.meta.get("checkpoint") is not None
    ):
        return False
    return device_of(val.device).enabled(context.config) and _is_positive(val.shape[dim])


def _is_positive(size: Any) -> bool:
    """Whether a size is known to be more than 0; no guard is added."""
    try:
        return SymbolTable()(size).lo > 0
    except UnsupportedExpression:
        return False


def _pays(node: fx.Node, context: CompileContext) -> bool:
    """Whether the backward reads the result, and its elements follow by subtractions, or on a GPU from something smaller: powers are not computed
    again for nothing, and on a CPU they take longer than reading them."""
    if not any(user.meta.get("backward") for user in node.users):
        return False
    if node.target is aten._log_softmax.default:
        return True
    source: Any = node.args[0]
    if not device_of(source.meta["val"].device).language(context.config).in_grid:
        return False
    least = bytes_of(source.meta["val"])
    while source.op == "call_function" and source.target in _CASTS:
        source = source.args[0]
        least = min(least, bytes_of(source.meta["val"]))
    return least < bytes_of(node.meta["val"])


def _open(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """The steps in front of ``node``; None where they would give it other strides than it has."""
    source: Any = node.args[0]
    dims, val = [node.args[1]], node.meta["val"]
    wide = compute_dtype(source.meta["val"].dtype)
    made: list[fx.Node] = []

    def step(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
        made.append(call(graph, node, target, *args, **kwargs))
        made[-1].meta.update((key, value) for key, value in node.meta.items() if key not in _OWN)
        return made[-1]

    def widened() -> fx.Node:
        # One for each reader, so that lowering sees the operand read twice, and stores that where it is costly.
        return source if source.meta["val"].dtype is wide else step(aten._to_copy.default, source, dtype=wide)

    peak = step(aten.amax.default, widened(), dims, True)
    shifted = step(aten.sub.Tensor, widened(), peak)
    powers = step(aten.exp.default, shifted)
    total = step(aten.sum.dim_IntList, powers, dims, True)
    if node.target is aten._log_softmax.default:
        result = step(aten.sub.Tensor, shifted, step(aten.log.default, total))
        shifted.meta[FOLLOWS] = result.meta[FOLLOWS] = True
    else:
        result = step(aten.div.Tensor, powers, total)
    follows = FOLLOWS in result.meta
    if val.dtype is not wide:
        result = step(aten._to_copy.default, result, dtype=val.dtype)
    if not same_layout(result.meta["val"], val) and val.is_contiguous():
        result = step(aten.clone.default, result, memory_format=torch.contiguous_format)
    if not same_layout(result.meta["val"], val):
        for unused in reversed(made):
            graph.erase_node(unused)
        return None
    if follows:
        result.meta[FOLLOWS] = True
    return result
