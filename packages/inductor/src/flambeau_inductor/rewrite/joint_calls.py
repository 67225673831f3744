"""Makes nodes of joint graphs: calls with their fake results, and nested graphs.

In: the place in front of which they go. Out: nodes that say which half of the graph they belong to, as the place does, and that can be taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from operator import getitem
from typing import Any

import torch
from attrs import define, field
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from ..lowering.trial import BODY
from .fakes import PROVENANCE, quietly

_NOTES = (*PROVENANCE, "backward", "checkpoint")


@define
class JointEditor:
    """Makes nodes in front of ``place``; those that it made are ``made``."""

    graph: fx.Graph
    place: fx.Node
    mode: FakeTensorMode
    made: list[fx.Node] = field(factory=list)

    def call(self, target: Any, *args: Any, known: Any = None, **kwargs: Any) -> fx.Node:
        """A call, with the result of running it on fakes, or the one that is ``known``."""
        if known is None:
            values = fx.node.map_arg((args, kwargs), lambda node: node.meta["val"])
            with quietly(self.mode):
                known = target(*values[0], **values[1])
        with self.graph.inserting_before(self.place):
            node = self.graph.call_function(target, args, kwargs)
        node.meta = {key: value for key, value in self.place.meta.items() if key in _NOTES}
        node.meta["val"] = known
        self.made.append(node)
        return node

    def body(self, body: fx.GraphModule) -> fx.Node:
        """A nested graph as an operand: a ``get_attr`` node that carries it as ``meta["body"]``."""
        with self.graph.inserting_before(self.place):
            node = self.graph.create_node("get_attr", f"{self.place.name}_body_{len(self.made)}")
        node.meta[BODY] = body
        self.made.append(node)
        return node

    def parts(self, node: fx.Node) -> list[fx.Node]:
        """The results of a call that has several."""
        return [self.call(getitem, node, number, known=val) for number, val in enumerate(node.meta["val"])]

    def undo(self) -> None:
        """Take back all that was made and that nothing else reads."""
        for node in reversed(self.made):
            self.graph.erase_node(node)
        self.made.clear()


def region_of(nodes: Iterable[fx.Node]) -> tuple[int | None, ...]:
    """The checkpointed region that all ``nodes`` are of, None for no region, as the only element; nothing where they are of several, or where somebody said of
    one of them how it is computed or whether it is saved."""
    nodes = list(nodes)
    if any(node.meta.get(note) for node in nodes for note in ("refused", "checks", "policy")):
        return ()
    regions = {node.meta.get("checkpoint") for node in nodes}
    return tuple(regions) if len(regions) == 1 else ()


def empty(mode: FakeTensorMode, *shape: int, device: torch.device) -> torch.Tensor:
    """A fake of float32."""
    with quietly(mode):
        return torch.empty(shape, dtype=torch.float32, device=device)


def sweep(graph: fx.Graph, roots: list[fx.Node], results: Collection[fx.Node]) -> None:
    """Erase ``roots`` and what nobody reads any more, but for those of ``results``, which no node reads, that are no roots."""
    pending = list(roots)
    while pending:
        node = pending.pop()
        kept = node in results and node not in roots
        if node.op == "call_function" and not (node.users or node._erased or kept):
            pending.extend(node.all_input_nodes)
            graph.erase_node(node)
