"""What a trace comes to: the record that passes tidy and the partition cuts.

In: nodes, as `build.py` and `nested/trace.py` record them. Out: `Joint`, one graph with what enters and leaves it.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import define, field
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, GraphModule, Node

from ..analysis.signature import Analysis
from ..records import WatchedSpec
from .inputs import TracedInput


@define(eq=False)
class Joint:
    """`results`, `grads`: nodes or plain values; `writes`: (placeholder, node of the new contents); `tangents`: with those of `flagged`;
    `eagers`: nodes whose values eager's nodes save or hold; `held`: what contexts hold, in order (None: no node of the graph's); `told`: those of
    `eagers` which must follow from what is saved, whether the backward reads them or not; `functions`: whether the program's own are differentiated;
    `stands_for`: what a node stands for that a rewrite put in the place of another; `policies`: for checkpointed regions, which of their operations may be saved all the same (see `partition/policy.py`)."""

    graph: Graph
    constants: dict[str, torch.Tensor | GraphModule]
    inputs: list[TracedInput]
    analysis: Analysis
    results: list[Any]
    writes: list[tuple[Node, Node]]
    differentiable: list[int] = field(factory=list)
    tangent_orders: list[tuple[int, ...]] = field(factory=list)
    tangents: list[Node] = field(factory=list)
    grad_inputs: list[int] = field(factory=list)
    grads: list[Any] = field(factory=list)
    reached_by: list[tuple[int, ...]] = field(factory=list)
    led_by: list[tuple[int, ...]] = field(factory=list)
    flagged: list[tuple[int, ...]] = field(factory=list)
    watched: list[WatchedSpec] = field(factory=list)
    eagers: frozenset[Node] = frozenset()
    held: list[Node | None] = field(factory=list)
    functions: bool = False
    told: set[Node] = field(factory=set)
    stands_for: dict[Node, Node] = field(factory=dict)
    frees: list[tuple[int, ...]] = field(factory=list)
    policies: dict[int, Any] = field(factory=dict)


def detach_values(graph: Graph) -> None:
    """Node values forget the autograd graph of the trace."""
    fresh: dict[int, Any] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, FakeTensor) and value.requires_grad:
            found = fresh.get(id(value))
            if found is None:
                found = fresh[id(value)] = value.detach()
            return found
        if isinstance(value, (list, tuple)):
            return type(value)(plain(v) for v in value)
        return value

    with torch.no_grad():
        for node in graph.nodes:
            if node.op != "placeholder":
                node.meta["val"] = plain(node.meta.get("val"))
