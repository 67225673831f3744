"""Emits the forward and backward graphs once it is decided which values are saved.

In: a `Joint` and the set of saved nodes. Out: two GraphModules and the plain description of how they are joined.
Whatever the backward needs beyond the saved values is computed again there, just before its first use.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from attrs import frozen
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule
from torch.fx.node import map_arg

from ..errors import InternalError
from ..joint.record import Joint
from ..passes.facts import alias_root, counts_in_memory, is_late, is_pinned, is_tensor, tells_strides
from ..records import SavedSpec, WatchedSpec
from .exposed import exposed, is_checked, read_elsewhere, watched
from .sizes import untold_sizes
from .writes import write_back

aten = torch.ops.aten


@frozen
class Halves:
    """The two graphs, the saved values in the backward's input order, what is watched besides, and the nodes of the saved values."""

    forward: GraphModule
    backward: GraphModule | None
    saved: tuple[SavedSpec, ...]
    extras: int
    backward_inputs: list[Any]
    watched: tuple[WatchedSpec, ...]
    nodes: tuple[Node, ...] = ()


def dependents(joint: Joint) -> set[Node]:
    """Nodes that depend on a tangent, or are an effect of the backward: they can only run there."""
    reached: set[Node] = set(joint.tangents)
    for node in joint.graph.nodes:
        if node not in reached and (is_late(node) or any(a in reached for a in node.all_input_nodes)):
            reached.add(node)
    return reached


def split(joint: Joint, saved: Iterable[Node], apart: frozenset[Node] = frozenset()) -> Halves:
    """Build both graphs. `saved` must cut every path from the inputs to the backward; of those in `apart` a copy is saved."""
    late = dependents(joint)
    order = {node: i for i, node in enumerate(joint.graph.nodes)}
    kept = sorted(set(saved), key=lambda n: order[n])
    copied = {joint.inputs[m.index].node for m in joint.analysis.mutations} | exposed(joint) | apart
    places = {r: i for i, r in reversed(list(enumerate(joint.results))) if isinstance(r, Node)}
    inputs = {t.node: t.index for t in joint.inputs}
    specs: list[tuple[Node, SavedSpec]] = []
    extra_nodes: list[Node] = []
    roots = {alias_root(r): i for i, r in enumerate(joint.results) if isinstance(r, Node) and is_tensor(r)}
    for tensors in (True, False):
        for node in kept:
            if is_tensor(node) != tensors:
                continue
            own = tensors and alias_root(node) in copied
            if node in inputs and not own:
                checked = is_checked(joint, "input", inputs[node])
                specs.append((node, SavedSpec("input", inputs[node], tensors, checked=checked)))
            elif node in places and not own:
                checked = is_checked(joint, "output", places[node])
                specs.append((node, SavedSpec("output", places[node], tensors, checked=checked)))
            else:
                shares = roots.get(alias_root(node), -1) if tensors and not own else -1
                checked = shares < 0 or is_checked(joint, "output", shares)
                specs.append((node, SavedSpec("extra", len(extra_nodes), tensors, shares, checked)))
                extra_nodes.append(node)
    forward = _forward(joint, late, extra_nodes, copied)
    if not joint.grads:
        return Halves(forward, None, (), 0, [], ())
    ordered = [s for s in specs if not s[1].is_tensor] + [s for s in specs if s[1].is_tensor]
    backward = _backward(joint, [n for n, _ in ordered])
    more = {*untold_sizes(joint, backward, late), *_read_from_memory(joint, backward, copied)} - set(kept)
    if more:
        return split(joint, [*kept, *more], apart)
    saved_specs = tuple(s for _, s in ordered)
    elsewhere = read_elsewhere(joint, backward, saved_specs)
    if elsewhere:
        return split(joint, kept, apart | {alias_root(ordered[place][0]) for place in elsewhere})
    values = [n.meta["val"] for n, _ in ordered] + [t.meta["val"] for t in joint.tangents]
    nodes = tuple(n for n, _ in ordered)
    return Halves(forward, backward, saved_specs, len(extra_nodes), values, watched(joint, saved_specs), nodes)


def _read_from_memory(joint: Joint, backward: GraphModule, copied: set[Node]) -> list[Node]:
    """What the backward would compute again of a copy, though it depends on how memory lies, and the copy need not lie as what it is of: to be
    saved itself."""
    again = {node.name for node in backward.graph.nodes if node.op == "call_function"}
    return [
        node
        for node in joint.graph.nodes
        if node.name in again and (counts_in_memory(node) or tells_strides(node)) and alias_root(node.args[0]) in copied
    ]


def _copy(graph: Graph, node: Node, env: dict[Node, Node]) -> Node:
    args = map_arg(node.args, env.__getitem__)
    kwargs = map_arg(node.kwargs, env.__getitem__)
    copy = graph.create_node(node.op, node.target, args, kwargs, node.name)
    copy.meta = dict(node.meta)
    env[node] = copy
    return copy


def _forward(joint: Joint, late: set[Node], extras: list[Node], copied: set[Node]) -> GraphModule:
    leaving = [n for n in (*joint.results, *extras, *(v for _, v in joint.writes)) if isinstance(n, Node)]
    needed = set(leaving)
    for node in reversed(joint.graph.nodes):
        if node in late:
            continue
        if node in needed or (is_pinned(node) and node.op == "call_function" and not node.meta.get("backward")):
            needed.add(node)
            needed.update(node.all_input_nodes)
    graph = Graph()
    env: dict[Node, Node] = {}
    for item in joint.inputs:
        _copy(graph, item.node, env)
    for node in joint.graph.nodes:
        if node in needed and node.op != "placeholder":
            _copy(graph, node, env)
    saved = []
    for node in extras:
        out = env[node]
        if alias_root(node) in copied:
            out = _saved_copy(graph, out)
        saved.append(out)
    results = [env[r] if isinstance(r, Node) else r for r in joint.results]
    writes = [(env[target], env[value]) for target, value in joint.writes]
    copies = write_back(graph, writes, [r for r in results if isinstance(r, Node)])
    results = [copies.get(r, r) for r in results]
    return _module(graph, (*results, *saved), joint)


def _saved_copy(graph: Graph, node: Node) -> Node:
    """A copy that repeats what the tensor repeats, where its strides are known to be 0: of a copy in full the views that are made of the tensor
    might not be made."""
    value = node.meta["val"]
    strides = value.stride() if value.layout is torch.strided else ()
    repeated = [dim for dim, stride in enumerate(strides) if isinstance(stride, int) and stride == 0]
    repeated = [dim for dim in repeated if not (isinstance(size := value.shape[dim], int) and size < 2)]
    part = node
    for dim in repeated:
        part = _call(graph, aten.slice.Tensor, part, dim, 0, 1)
    copy = _call(graph, aten.clone.default, part)
    if repeated:
        sizes = [_size(graph, node, dim) if dim in repeated else -1 for dim in range(value.dim())]
        copy = _call(graph, aten.expand.default, copy, sizes)
    copy.meta.update(node.meta)
    return copy


def _size(graph: Graph, node: Node, dim: int) -> Node | int:
    size = node.meta["val"].shape[dim]
    return size if isinstance(size, int) else _call(graph, aten.sym_size.int, node, dim)


def _call(graph: Graph, op: OpOverload, *args: Any) -> Node:
    call = graph.call_function(op, args)
    call.meta["val"] = op(*map_arg(args, lambda node: node.meta["val"]))
    return call


def _backward(joint: Joint, saved: list[Node]) -> GraphModule:
    graph = Graph()
    env: dict[Node, Node] = {}
    for node in saved:
        name = node.name if node.op == "placeholder" else f"saved_{node.name}"
        env[node] = graph.placeholder(name)
        env[node].meta = {"val": node.meta["val"], "stack": node.meta.get("stack", ())}
    for node in joint.tangents:
        _copy(graph, node, env)
    wanted = [g for g in joint.grads if isinstance(g, Node)]
    needed = {*wanted, *filter(is_late, joint.graph.nodes)}
    for node in reversed(joint.graph.nodes):
        if node in needed and node not in env:
            needed.update(node.all_input_nodes)
    late = dependents(joint)
    for node in joint.graph.nodes:
        if node in needed and node in late:
            _emit(graph, node, env)
    for node in wanted:
        _emit(graph, node, env)
    return _module(graph, tuple(env[g] if isinstance(g, Node) else g for g in joint.grads), joint)


def _emit(graph: Graph, node: Node, env: dict[Node, Node]) -> None:
    """Copy `node` and what it still needs; a stack instead of recursion, recomputed chains may be long."""
    stack = [node]
    while stack:
        top = stack[-1]
        if top in env:
            stack.pop()
            continue
        missing = [a for a in top.all_input_nodes if a not in env]
        if missing:
            stack.extend(reversed(missing))
            continue
        if top.op == "placeholder":
            raise InternalError(f"the backward needs the input {top.name}, which was not saved")
        _copy(graph, top, env)
        stack.pop()


def _module(graph: Graph, outputs: tuple[Any, ...], joint: Joint) -> GraphModule:
    graph.output(outputs)
    root = torch.nn.Module()
    for node in graph.nodes:
        if node.op == "get_attr":
            constant = joint.constants[str(node.target)]
            if isinstance(constant, GraphModule):
                root.add_module(str(node.target), constant)
            else:
                root.register_buffer(str(node.target), constant, persistent=False)
    return _LazyGraphModule(root, graph)
