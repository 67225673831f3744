"""Calls that repeat, as calls of one body: a layer of a deep model is traced, partitioned and lowered once.

In: a captured graph whose nodes tell which calls of modules and of nested compile regions they were made in (`meta["calls"]`). Out: the same graph with
`invoke_subgraph` in the place of calls that are alike, or None where there are too few of them. Calls are alike where their nodes do the same on values
of the same kinds. A call is left as it is where that would not be equal to a body's call: it gives what it was given, or what is no tensor, changes
settings, or takes part in a checkpoint. Masks and positions that follow from sizes alone, on a GPU from what inputs say of keys too, are computed in the body. The graph itself is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import getitem
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor, fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .graph_nodes import NUMBERS, is_of_a_mask, is_plain, is_value, mask_chain, name_of
from .records import RepeatRecord

_INVOKE = torch.ops.higher_order.invoke_subgraph
#: What no kernel is fused with across calls: layers without them become one kernel together, which is worth more than compiling them once.
_PRODUCTS = frozenset((
    "linear", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm", "einsum", "scaled_dot_product_attention",
))  # fmt: skip
#: Below this a call costs more than what it saves.
_LEAST_OPERATIONS = 4
#: A region that the program marks is worth a body from its second call on.
_LEAST_MARKED = 2


@frozen
class Outlined:
    """`graph`: what is compiled; `repeats`: what it does once."""

    graph: fx.GraphModule
    repeats: tuple[RepeatRecord, ...]


@frozen(eq=False)
class _Call:
    """`inside`: its nodes; `operands`: what they read of the graph around them, in order; `results`: those of its nodes that others read."""

    name: str
    marked: bool
    inside: tuple[fx.Node, ...]
    operands: tuple[fx.Node, ...]
    results: tuple[fx.Node, ...]
    #: Equal for calls that are alike.
    form: Any = field(repr=False)


def outline(gm: fx.GraphModule, least: int) -> Outlined | None:
    """Put bodies in the place of calls that are alike: `least` of them, if they multiply matrices, or 2 where the program marks them.
    `least` 0: marked ones alone."""
    if gm.meta.get("wrappers") or any(node.meta.get("inference") for node in gm.graph.find_nodes(op="placeholder")):
        return None
    every = list(gm.graph.nodes)
    groups = list(_alike({node: place for place, node in enumerate(every)}, every, every, 0, least))
    if not groups:
        return None
    return Outlined(
        _with_bodies(gm, groups),
        tuple(RepeatRecord(calls[0].name, len(calls), len(calls[0].inside)) for calls in groups),
    )


def _alike(
    order: dict[fx.Node, int], every: Sequence[fx.Node], nodes: Sequence[fx.Node], depth: int, least: int
) -> Iterator[list[_Call]]:
    """Groups of calls at this depth of the program's calls among `nodes`, and of those inside of the others."""
    made: dict[int, list[fx.Node]] = {}
    for node in nodes:
        if len(calls := node.meta.get("calls", ())) > depth:
            made.setdefault(calls[depth][0], []).append(node)
    groups: dict[Any, list[_Call]] = {}
    rest: list[fx.Node] = []
    for members in made.values():
        call = _call_of(order, every, members, members[0].meta["calls"][depth])
        if call is None:
            rest += members
        else:
            groups.setdefault((call.name, call.marked, call.form), []).append(call)
    for calls in groups.values():
        multiplies = any(name_of(node) in _PRODUCTS for node in calls[0].inside)
        wanted = _LEAST_MARKED if calls[0].marked else least if multiplies else 0
        if wanted and len(calls) >= wanted:
            yield calls
        else:
            rest += [node for call in calls for node in made[call.inside[0].meta["calls"][depth][0]]]
    if rest:
        yield from _alike(order, every, rest, depth + 1, least)


def _call_of(
    order: dict[fx.Node, int], every: Sequence[fx.Node], members: Sequence[fx.Node], mark: tuple[int, str, bool, str]
) -> _Call | None:
    """The call that made these nodes; None where it is not to be that of a body."""
    inside: dict[fx.Node, int] = {}
    for node in members:
        # What a call is the first to ask of the sizes around it stays there: other calls use the answer.
        around = not any(operand in inside for operand in node.all_input_nodes)
        if node.op != "get_attr" and not (isinstance(node.meta.get("val"), NUMBERS) and around):
            inside[node] = len(inside)
    if len(inside) < _LEAST_OPERATIONS or not all(map(is_plain, inside)):
        return None
    first, last = order[next(iter(inside))], order[next(reversed(inside))]
    known = {*members}
    if not all(node in known or node.op in ("placeholder", "get_attr") for node in every[first:last]):
        return None
    operands = dict.fromkeys(operand for node in inside for operand in node.all_input_nodes if operand not in inside)
    results = tuple(node for node in inside if any(user not in inside for user in node.users))
    if not _is_on_its_own(tuple(operands), results):
        return None
    return _Call(mark[1], mark[2], tuple(inside), tuple(operands), results, _form(inside, tuple(operands), results))


def _is_on_its_own(operands: tuple[fx.Node, ...], results: tuple[fx.Node, ...]) -> bool:
    """Whether all that others see of a call are tensors of its own."""
    given = [operand.meta.get("val") for operand in operands]
    shown = [result.meta.get("val") for result in results]
    if not results or not all(map(is_value, given)) or not all(isinstance(value, Tensor) for value in shown):
        return False
    if any(
        node.op == "placeholder" and value._version
        for node, value in zip(operands, given, strict=True)
        if isinstance(value, Tensor)
    ):
        return False  # somebody writes to it, the call perhaps
    memories = [value.untyped_storage()._cdata for value in shown]
    outside = {value.untyped_storage()._cdata for value in given if isinstance(value, Tensor)}
    return len({*memories}) == len(memories) and not outside.intersection(memories)


def _form(inside: dict[fx.Node, int], operands: tuple[fx.Node, ...], results: tuple[fx.Node, ...]) -> Any:
    """Equal for calls whose bodies are the same: what is called, on what, with which results."""
    places = {operand: place for place, operand in enumerate(operands)}

    def argument(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ("node", inside[value]) if value in inside else ("operand", places[value])
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *map(argument, value))
        if isinstance(value, slice):
            return ("slice", *map(argument, (value.start, value.stop, value.step)))
        if isinstance(value, dict):
            return ("dict", *((key, argument(part)) for key, part in value.items()))
        # Neither equality nor a hash of its own can be trusted: 1, 1.0 and True are equal.
        return (type(value).__name__, repr(value))

    body = tuple((n.op, n.target, argument(n.args), argument(n.kwargs), _described(n.meta["val"])) for n in inside)
    return body, tuple(_described(operand.meta["val"]) for operand in operands), tuple(inside[r] for r in results)


def _described(value: Any) -> Any:
    if isinstance(value, Tensor):
        lying = (*map(str, value.shape), str(value.storage_offset()), *map(str, value.stride()))
        return (lying, value.dtype, value.device, value.requires_grad)
    if isinstance(value, (tuple, list)):
        return tuple(map(_described, value))
    return (type(value).__name__, str(value))


def _with_bodies(gm: fx.GraphModule, groups: Sequence[Sequence[_Call]]) -> fx.GraphModule:
    """A copy of the graph that calls one body for each group."""
    root = torch.nn.Module()
    ends: dict[fx.Node, tuple[str, _Call]] = {}
    gone = {node for calls in groups for call in calls for node in call.inside}
    every = list(gm.graph.nodes)
    order = {node: place for place, node in enumerate(every)}
    masks: dict[str, _Masks] = {}
    for number, calls in enumerate(groups):
        name = f"repeated_{number}"
        masks[name] = _masks_of(order, gone, calls)
        root.add_module(name, _body(calls, masks[name]))
        ends.update((call.inside[-1], (name, call)) for call in calls)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    named: dict[str, fx.Node] = {}
    for node in every:
        if node not in gone:
            copies[node] = graph.node_copy(node, copies.__getitem__)
            if node.op == "get_attr":
                held = getattr(gm, str(node.target))
                root.register_buffer(str(node.target), held) if isinstance(held, Tensor) else setattr(
                    root, str(node.target), held
                )
        elif node in ends:
            name, call = ends[node]
            if name not in named:
                named[name] = graph.create_node("get_attr", name)
                named[name].meta["stack"] = node.meta["stack"]
            operands = masks[name].operands(call)
            made = graph.call_function(_INVOKE, (named[name], name, *(copies[operand] for operand in operands)))
            made.meta.update(val=tuple(result.meta["val"] for result in call.results), stack=node.meta["stack"])
            for place, result in enumerate(call.results):
                copies[result] = graph.call_function(getitem, (made, place))
                copies[result].meta.update(result.meta)
    moved = {node for mask in masks.values() for node in mask.nodes}
    for node in reversed(every):
        # What nobody reads, of what is computed in bodies now.
        if node in copies and not copies[node].users:
            computes_on = not moved.isdisjoint(node.all_input_nodes) and is_of_a_mask(node)
            if node in moved or computes_on:
                graph.erase_node(copies[node])
    module = _LazyGraphModule(root, graph, "OutlinedGraph")
    module.meta.update(gm.meta)
    return module


@frozen
class _Masks:
    """Operands of a group's calls that each call computes by itself: `nodes` in order, `places` of what they give, `sizes` (and inputs) that they read."""

    nodes: tuple[fx.Node, ...] = ()
    places: frozenset[int] = frozenset()
    sizes: tuple[fx.Node, ...] = ()

    def operands(self, call: _Call) -> tuple[fx.Node, ...]:
        """What the call's body is still given."""
        kept = (operand for place, operand in enumerate(call.operands) if place not in self.places)
        return (*kept, *self.sizes)


def _masks_of(order: dict[fx.Node, int], gone: set[fx.Node], calls: Sequence[_Call]) -> _Masks:
    """Masks and positions that all calls are given and that follow from sizes and small inputs alone, outside of all calls (whose nodes are `gone`)."""
    every = list(order)
    last = max(order[call.inside[-1]] for call in calls)
    nodes: dict[fx.Node, None] = {}
    sizes: dict[fx.Node, None] = {}
    places: set[int] = set()
    for place, shared in enumerate(zip(*(call.operands for call in calls), strict=True)):
        if len({*shared}) > 1 or not isinstance(shared[0].meta.get("val"), Tensor):
            continue
        chain, read = mask_chain(shared[0], gone, with_inputs=True)
        # A setting changed on the way (autocast, the default dtype) may change what the same operations give.
        if chain and all(_changes_nothing(node) for node in every[min(map(order.__getitem__, chain)) : last]):
            nodes.update(dict.fromkeys(chain))
            sizes.update(dict.fromkeys(read))
            places.add(place)
    return _Masks(tuple(sorted(nodes, key=order.__getitem__)), frozenset(places), tuple(sizes))


def _changes_nothing(node: fx.Node) -> bool:
    """Whether a node is no change of a setting: those give nothing."""
    return node.op != "call_function" or node.meta.get("val") is not None


def _body(calls: Sequence[_Call], masks: _Masks) -> fx.GraphModule:
    call, graph = calls[0], fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for place, operand in enumerate(masks.operands(call)):
        made = graph.placeholder(f"operand_{place}")
        made.meta.update(val=operand.meta["val"], stack=operand.meta.get("stack", ()))
        copies.setdefault(operand, made)
    for node in (*masks.nodes, *call.inside):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    for alike in zip(*(each.inside for each in calls), strict=True):
        if module := _path_of_all([node.meta.get("module", "") for node in alike]):
            copies[alike[0]].meta["module"] = module
    output = graph.output(tuple(copies[result] for result in call.results))
    output.meta["val"] = tuple(result.meta["val"] for result in call.results)
    return fx.GraphModule(torch.nn.Module(), graph, "Body")


def _path_of_all(paths: Sequence[str]) -> str:
    """The paths of modules that are alike, with a star where they differ: `layers.*.attention`."""
    parts = [path.split(".") for path in paths]
    if len(set(map(len, parts))) != 1:
        return ""
    return ".".join(names[0] if len(set(names)) == 1 else "*" for names in zip(*parts, strict=True))
