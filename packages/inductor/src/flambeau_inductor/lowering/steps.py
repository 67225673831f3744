"""Bodies of loops as steps that a loop can run: what is stacked goes into its place at once.

In: a body whose outputs are what is carried on, then what is stacked. Out: one that takes, behind its other inputs, the places of what is
stacked, writes there and gives what is carried on alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..errors import UnsupportedGraphError

aten = torch.ops.aten


def writing(module: fx.GraphModule, carried: int) -> fx.GraphModule:
    """``module`` with a place for each output behind the first ``carried``."""
    outputs = outputs_of(module)
    return _with_places(module, outputs[:carried], outputs[carried:])


def stepping(combine: fx.GraphModule) -> fx.GraphModule:
    """A combination of (what came before, element, …) that carries its results on and writes them."""
    outputs = outputs_of(combine)
    return _with_places(combine, outputs, outputs)


def inputs_of(module: fx.GraphModule) -> list[fx.Node]:
    """The placeholders of a body."""
    return module.graph.find_nodes(op="placeholder")


def outputs_of(module: fx.GraphModule) -> list[Any]:
    """What a body returns, in order."""
    (result,) = module.graph.output_node().args
    return list(result) if isinstance(result, tuple | list) else [result]


def _with_places(module: fx.GraphModule, carried: Sequence[Any], stacked: Sequence[Any]) -> fx.GraphModule:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in inputs_of(module):
        copies[node] = graph.node_copy(node)
    places = [_place(graph, number, value) for number, value in enumerate(stacked)]
    for node in module.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copies[node] = graph.node_copy(node, copies.__getitem__)
    for place, value in zip(places, stacked, strict=True):
        written = graph.call_function(aten.copy_.default, (place, copies[value]))
        written.meta = {"val": place.meta["val"]}
    graph.output(tuple(copies[value] if isinstance(value, fx.Node) else value for value in carried))
    return fx.GraphModule(module, graph)


def _place(graph: fx.Graph, number: int, value: Any) -> fx.Node:
    val = value.meta["val"] if isinstance(value, fx.Node) else value
    if not isinstance(val, torch.Tensor):
        raise UnsupportedGraphError(f"a loop that stacks {type(val).__name__}")
    place = graph.placeholder(f"place_{number}")
    place.meta = {"val": torch.empty_like(val, memory_format=torch.contiguous_format)}
    return place
