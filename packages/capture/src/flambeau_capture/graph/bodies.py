"""`BodyGraph`: a graph within a graph, that of a function which an operator calls (a branch, a step of a loop).

In: nodes of the graph around it that operations of the body read; values that the operator hands to it. Out: a `GraphModule` whose inputs
are what it is handed, then what it reads of the graph around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.fx

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .repeats import Region


#: What a tensor shows of its history within a transformed function is the innermost level's.
_HISTORY = frozenset((
    "requires_grad", "is_leaf", "grad_fn", "grad", "retains_grad", "_is_view", "_base", "_version", "requires_grad_",
))  # fmt: skip
#: Of batched tensors the layout is that of the whole batch.
_LAYOUT = frozenset(("stride", "is_contiguous", "storage_offset", "is_shared", "is_pinned"))
_HIDDEN = {"grad": _HISTORY, "jvp": _HISTORY, "vmap": _HISTORY | _LAYOUT, "jacfwd": _HISTORY | _LAYOUT}


class BodyGraph:
    """One body while it grows."""

    def __init__(self, around: torch.fx.Graph, region: Region) -> None:
        self.graph = torch.fx.Graph()
        self.region = region
        #: Nodes of the graph around it, and the inputs that stand for them, in the order in which they were read.
        self.lifted: dict[torch.fx.Node, torch.fx.Node] = {}
        self.modules: dict[str, torch.fx.GraphModule] = {}
        #: Whether a tensor without dimensions as an index picks what it says, and is no number that Python would have to know.
        self.indexes_by_tensors = False
        #: The transform of `torch.func` that calls the body, and into how many samples it takes tensors apart, if it does.
        self.transform: str | None = None
        self.batch: Any = None
        self._around = around
        self._last: torch.fx.Node = self.graph._root

    @property
    def hidden(self) -> frozenset[str]:
        """Facts of tensors that what calls the body shows otherwise than their fakes do."""
        return _HIDDEN.get(self.transform or "", frozenset())

    def bind(self, value: Any) -> torch.fx.Node:
        """An input for what the operator hands to the body; before any operation."""
        return self._placeholder(value)

    def lift(self, node: torch.fx.Node) -> torch.fx.Node:
        """The input that stands for a node of the graph around this one."""
        assert node.graph is self._around
        if node not in self.lifted:
            self.lifted[node] = self._placeholder(node.meta["val"])
        return self.lifted[node]

    def arrange(self, operands: Iterable[torch.fx.Node]) -> None:
        """Inputs for exactly these nodes around it, in this order: bodies of one operator take the same operands."""
        for node in operands:
            placeholder = self.lift(node)
            if placeholder is not self._last:
                self._last.append(placeholder)
                self._last = placeholder

    def begin_with_lifted(self) -> None:
        """Inputs that stand for nodes around it come first, so that a partial application of the body binds them."""
        for placeholder in reversed(self.lifted.values()):
            self.graph._root.append(placeholder)

    def finish(self, outputs: torch.fx.Node | tuple[torch.fx.Node, ...]) -> torch.fx.GraphModule:
        """Close the graph, with a module around it and the bodies that it calls."""
        output = self.graph.output(outputs)
        output.meta["val"] = torch.fx.map_arg(outputs, lambda node: node.meta["val"])
        root = torch.nn.Module()
        for name, module in self.modules.items():
            root.add_module(name, module)
        return torch.fx.GraphModule(root, self.graph, "Body")

    def _placeholder(self, value: Any) -> torch.fx.Node:
        with self.graph.inserting_after(self._last):
            self._last = self.graph.placeholder(f"operand_{len(self.graph.find_nodes(op='placeholder'))}")
        self._last.meta["val"] = value
        return self._last


def hides(bodies: Sequence[BodyGraph], node: torch.fx.Node | None, name: str) -> bool:
    """Whether a fact of what a node in one of the bodies computes is not that of its fake: a transform calls the body with tensors of its own."""
    for place, body in enumerate(bodies):
        if node is not None and node.graph is body.graph:
            return any(name in around.hidden for around in bodies[: place + 1])
    return False


def varies(bodies: Sequence[BodyGraph], node: torch.fx.Node) -> bool:
    """Whether what a node of a body computes may be another for each sample of a batch."""
    waiting, seen = [node], {node}
    while waiting:
        node = waiting.pop()
        body = next((body for body in bodies if body.graph is node.graph), None)
        if body is None:
            continue
        around = [outer for outer, inner in body.lifted.items() if inner is node]
        if node.op == "placeholder" and not around and body.transform == "vmap":
            return True
        found = {*around, *node.all_input_nodes} - seen
        seen |= found
        waiting += found
    return False
