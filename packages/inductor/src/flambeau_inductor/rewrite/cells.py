"""Take the library's fused LSTM cell apart where its gradient is not wanted.

In: a functional graph. Out: the same graph with ``_thnn_fused_lstm_cell`` as the pointwise operations that it stands for, which
one generated kernel does together with what surrounds them: the parts of a product, the cell's own output.

The library's kernel also writes the activations of all gates, for its gradient. Where a graph reads those, it stays.

Rounding: the library computes in float32 (float64 for float64) from the gates to both results and rounds these once, as done here.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch import fx

from ..context import CompileContext
from .fakes import fake_mode_of, quietly
from .joins import call
from .products import erase

aten = torch.ops.aten


def open_cells(gm: fx.GraphModule, context: CompileContext) -> bool:
    """Rewrite every cell whose activations nothing reads."""
    mode = fake_mode_of(gm.graph)
    if mode is None or not context.config.triton_kernels:
        return False
    changed = False
    for node in list(gm.graph.nodes):
        if node.op == "call_function" and node.target is aten._thnn_fused_lstm_cell.default and _is_open(node):
            with quietly(mode):
                hidden, memory = _cell(gm.graph, node)
            for user in list(node.users):
                user.replace_all_uses_with((hidden, memory)[user.args[1]])
                gm.graph.erase_node(user)
            erase(gm.graph, node)
            changed = True
    return changed


def _is_open(node: fx.Node) -> bool:
    """Whether only the new states are read, and all sizes that matter here are numbers."""
    if not all(user.target is getitem and user.args[1] in (0, 1) for user in node.users):
        return False
    gates = node.args[0].meta["val"]
    return gates.dim() == 2 and isinstance(gates.shape[1], int)


def _cell(graph: fx.Graph, node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """``c' = f c + i g`` and ``h' = o tanh(c')`` of the gates' sums, added in the library's order."""
    given: list[Any] = [*node.args, None, None]
    gates, other, memory, *biases = given[:5]
    stored: torch.dtype = memory.meta["val"].dtype

    def widen(value: fx.Node) -> fx.Node:
        if stored not in (torch.float16, torch.bfloat16):
            return value
        return call(graph, node, aten._to_copy.default, value, dtype=torch.float32)

    def narrow(value: fx.Node) -> fx.Node:
        return (
            value
            if value.meta["val"].dtype is stored
            else call(graph, node, aten._to_copy.default, value, dtype=stored)
        )

    def part(n: int) -> fx.Node:
        # Each gate from its own columns: a sum of whole rows would be read four times, and so be stored.
        pieces = [widen(columns(value, n)) for value in (gates, other, *biases) if value is not None]
        total = pieces[0]
        for piece in pieces[1:]:
            total = call(graph, node, aten.add.Tensor, total, piece)
        return total

    def columns(value: fx.Node, n: int) -> fx.Node:
        val = value.meta["val"]
        width = val.shape[-1] // 4
        return call(graph, node, aten.slice.Tensor, value, val.dim() - 1, n * width, (n + 1) * width)

    parts = [part(n) for n in range(4)]
    enter, forget, leave = (call(graph, node, aten.sigmoid.default, parts[n]) for n in (0, 1, 3))
    cell = call(graph, node, aten.tanh.default, parts[2])
    kept = call(graph, node, aten.mul.Tensor, forget, widen(memory))
    added = call(graph, node, aten.mul.Tensor, enter, cell)
    result = call(graph, node, aten.add.Tensor, kept, added)
    hidden = call(graph, node, aten.mul.Tensor, leave, call(graph, node, aten.tanh.default, result))
    return narrow(hidden), narrow(result)
