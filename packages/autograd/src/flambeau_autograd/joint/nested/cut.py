"""Functional graphs out of the trace of a body.

In: a `Trace`. Out: `Cut`: the graph of the forward, and the one of its gradients with what it takes: either values that the forward gives besides
its results (`cut`), or the operands alone, of which it computes what it needs again (`recomputing`). What a graph takes has a `Key` each, so that
graphs of several bodies can be given one signature (`rewired`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import frozen
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ...errors import UnsupportedGraph
from ...partition.costs import saved_bytes
from ...partition.min_cut import min_cut
from ...partition.split import Halves, split
from ...passes.facts import alias_root, is_tensor
from ...records import SavedSpec
from ..record import Joint
from .trace import Trace

aten = torch.ops.aten


@frozen
class Key:
    """`kind`: input, output, extra, tangent (with a place), given (with those of results), or number (with the expression of a symbolic one)."""

    kind: str
    what: Any


@frozen(eq=False)
class Graphed:
    """A functional graph; `takes`: what its operands are; `gives`: what its results are."""

    module: GraphModule
    takes: tuple[Key, ...]
    gives: tuple[Key, ...]

    @property
    def kept(self) -> tuple[Key, ...]:
        """What it takes, without the tangents and what tells which of them are given."""
        return tuple(key for key in self.takes if key.kind not in ("tangent", "given"))

    def values(self) -> dict[Key, Any]:
        """The fakes (and numbers) of what it takes."""
        nodes = self.module.graph.find_nodes(op="placeholder")
        return {key: node.meta["val"] for key, node in zip(self.takes, nodes)}

    def results(self) -> list[Any]:
        """The fakes of what it gives, None for nothing."""
        (output,) = self.module.graph.find_nodes(op="output")
        return [value.meta["val"] if isinstance(value, Node) else None for value in output.args[0]]


@frozen(eq=False)
class Cut:
    """`backward` takes last the tangents and, of an `inlined` body, whether any of some results has one; it gives a gradient for each operand that it has one for, as an `input` key; None without gradients."""

    trace: Trace
    forward: Graphed
    backward: Graphed | None


def cut(trace: Trace) -> Cut:
    """The forward gives besides its results what the backward takes, as the partition chooses."""
    joint = trace.joint
    saved = _without_shared_memory(min_cut(joint, trace.config)) if joint.grads else set()
    return _graphs(trace, split(joint, saved))


def _without_shared_memory(saved: Iterable[Node]) -> set[Node]:
    """The same with memory that several values lie in saved as a whole: what a graph gives shares no memory, so that each would be a copy."""
    lying: dict[Node, list[Node]] = {}
    for node in saved:
        lying.setdefault(alias_root(node), []).append(node)
    found: set[Node] = set()
    for root, nodes in lying.items():
        whole = root.op != "get_attr" and is_tensor(root) and saved_bytes(root) <= sum(map(saved_bytes, nodes))
        found.update([root] if whole else nodes)
    return found


def recomputing(trace: Trace) -> Cut:
    """The backward takes operands and computes the rest again."""
    joint = trace.joint
    if joint.grads and trace.is_random:
        raise UnsupportedGraph("a body that draws random numbers would be run again for its gradient")
    needed = {grad for grad in joint.grads if isinstance(grad, Node)}
    for node in reversed(joint.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return _graphs(trace, split(joint, [item.node for item in joint.inputs if item.node in needed]))


def _graphs(trace: Trace, halves: Halves) -> Cut:
    joint = trace.joint
    takes = tuple(
        Key("number", item.seen.node.expr) if _is_symbol(trace, item.index) else Key("input", item.index)
        for item in joint.inputs
    )
    gives = tuple(Key("output", place) for place in range(len(joint.results)))
    saved = [_saved(joint, spec, takes, node) for spec, node in zip(halves.saved, halves.nodes)]
    by_place = {spec.index: key for spec, key in zip(halves.saved, saved) if spec.kind == "extra"}
    extras = tuple(by_place[place] for place in range(halves.extras))
    forward = finished(Graphed(halves.forward, takes, (*gives, *extras)))
    # The numbers that a body computes are computed outside as well.
    kept = tuple(key for key in forward.gives if key.kind != "number")
    forward = rewired(forward, takes, kept)
    if halves.backward is None:
        return Cut(trace, forward, None)
    tangents = (
        *(Key("tangent", place) for place in joint.differentiable),
        *(Key("given", tuple(joint.differentiable[end] for end in ends)) for ends in joint.flagged),
    )
    grads = tuple(Key("input", index) for index in joint.grad_inputs)
    return Cut(trace, forward, finished(Graphed(halves.backward, (*saved, *tangents), grads)))


def _is_symbol(trace: Trace, index: int) -> bool:
    return index >= len(trace.joint.inputs) - len(trace.symbols)


def _saved(joint: Joint, spec: SavedSpec, takes: Sequence[Key], node: Node) -> Key:
    if spec.kind == "input":
        return takes[spec.index]
    if not spec.is_tensor:
        return Key("number", node.meta["val"].node.expr)
    return Key(spec.kind, spec.index)


def finished(graphed: Graphed) -> Graphed:
    """With results that share no memory with anything."""
    graph = graphed.module.graph
    (output,) = graph.find_nodes(op="output")
    taken: set[Node] = set()
    results = []
    with graph.inserting_before(output):
        for value in output.args[0]:
            if isinstance(value, Node) and is_tensor(value):
                root = alias_root(value)
                if root in taken or root.op != "call_function":
                    value = call(graph, aten.clone.default, value)
                taken.add(root)
            results.append(value)
    output.args = (tuple(results),)
    return Graphed(_module(graphed.module, graph), graphed.takes, graphed.gives)


def rewired(
    graphed: Graphed,
    takes: Sequence[Key],
    gives: Sequence[Key],
    examples: Mapping[Key, Any] | None = None,
    missing: Callable[[Graph, Key, Mapping[Key, Node]], Any] | None = None,
) -> Graphed:
    """The same graph with another signature; `examples`: of what it did not take; `missing`: makes what it does not give, from what it takes."""
    values = {**(examples or {}), **graphed.values()}
    graph = Graph()
    given: dict[Key, Node] = {}
    for place, key in enumerate(takes):
        # A number may be any expression, which is no name.
        name = f"size_{place}" if key.kind == "number" else f"{key.kind}_{key.what}"
        given[key] = operand(graph, name, values[key])
    results = inlined(graph, graphed, given)
    outputs = [
        results[key] if key in results else missing(graph, key, given) if missing is not None else None for key in gives
    ]
    graph.output(tuple(outputs))
    return finished(Graphed(_module(graphed.module, graph), tuple(takes), tuple(gives)))


def inlined(graph: Graph, graphed: Graphed, given: Mapping[Key, Any]) -> dict[Key, Any]:
    """Copy a graph's nodes into `graph`; returns what it gives. Attributes must be found by the same names there."""
    env: dict[Node, Any] = {}
    keys = iter(graphed.takes)
    for node in graphed.module.graph.nodes:
        if node.op == "placeholder":
            env[node] = given[next(keys)]
        elif node.op == "output":
            results = map_arg(node.args[0], env.__getitem__)
            return dict(zip(graphed.gives, results))
        else:
            env[node] = graph.node_copy(node, env.__getitem__)
    raise AssertionError("a graph has no output")


def composed(graphed: Graphed, graph: Graph, takes: Sequence[Key], gives: Sequence[Key]) -> Graphed:
    """A graph that was made around the nodes of another, as one of its own."""
    return finished(Graphed(_module(graphed.module, graph), tuple(takes), tuple(gives)))


def call(graph: Graph, op: Any, *args: Any, **kwargs: Any) -> Node:
    """One more call, with its value on fakes."""
    node = graph.call_function(op, args, kwargs)
    node.meta.update(val=op(*map_arg(args, lambda a: a.meta["val"]), **kwargs), stack=())
    return node


def zeros_like(graph: Graph, node: Node) -> Node:
    """Zeros of the same shape, row-major."""
    zeros: Node = call(graph, aten.full_like.default, node, 0, memory_format=torch.contiguous_format)
    return zeros


def operand(graph: Graph, name: str, fake: Any) -> Node:
    """One more operand of a graph, with its value on fakes."""
    node = graph.placeholder(name)
    node.meta.update(val=fake, stack=())
    return node


def _module(root: torch.nn.Module, graph: Graph) -> GraphModule:
    return GraphModule(root, graph)


def united(keys: Iterable[Sequence[Key]]) -> tuple[Key, ...]:
    """Every key once, in order."""
    return tuple(dict.fromkeys(key for some in keys for key in some))
