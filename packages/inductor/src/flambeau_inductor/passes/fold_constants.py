"""Cut a graph in two: what follows from frozen inputs, and the rest that reads it.

In: a graph with marked inputs (`rewrite/constants.py`), rewritten. Out: ``Folded``: a graph that is run once for as long as the frozen inputs hold the same
(*folding*), and one for each call (*main*), whose last inputs are the results of the first. Nothing is computed here, and no number of a parameter gets
into either graph: both serve any contents of the same sizes.

Left to each call, since that costs nothing or keeps what eager promises: views, what a result of the graph may share memory with (a caller may write
to that), and values much larger than what they are computed from.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence, Set
from operator import getitem

from attrs import frozen
from torch import fx
from torch._ops import OpOverload
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..ops.aten import aten_op
from ..ops.packing import is_packing
from ..rewrite.constants import constants_of, is_frozen_input
from ..rewrite.fakes import bytes_of

#: A folded value takes memory for as long as the program lives: at most so many times that of what it is computed from, or so much, are spent.
_GROWTH, _SMALL = 4, 1 << 20


@frozen
class Folded:
    """``watched``: the places of the inputs that ``folding`` takes; ``kept``: of those that ``main`` takes before the results of it."""

    main: fx.GraphModule
    folding: fx.GraphModule
    watched: tuple[int, ...]
    kept: tuple[int, ...]


def fold(gm: fx.GraphModule) -> Folded | None:
    """``gm`` in two parts; None where no call would be saved anything. ``gm`` stays as it is."""
    constants = constants_of(gm.graph)
    border = _border(gm.graph, constants)
    if not border:
        return None
    folding, watched = _folding(gm, border)
    main, kept = _main(gm, border, constants)
    return Folded(main, folding, watched, kept)


def _border(graph: fx.Graph, constants: dict[fx.Node, bool]) -> list[fx.Node]:
    """The constants that each call reads and does not compute, in the order of the graph."""
    leaving = _leaving(graph)
    outside = {node for node in graph.nodes if node not in constants}
    border = []
    for node in reversed(graph.nodes):
        if node.op != "call_function" or node in outside or outside.isdisjoint(node.users):
            continue
        if not constants[node] or node in leaving or _stays(node):
            outside.add(node)
        else:
            border.append(node)
    return border[::-1]


def _stays(node: fx.Node) -> bool:
    if _is_view(node):
        return True
    given = sum(bytes_of(_base(operand).meta.get("val")) for operand in node.all_input_nodes)
    return bytes_of(node.meta["val"]) > max(_SMALL, _GROWTH * given)


def _is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and aten_op(node.target).shares_memory


def _base(node: fx.Node) -> fx.Node:
    """What a view shows."""
    while _is_view(node):
        node = node.all_input_nodes[0]
    return node


def _leaving(graph: fx.Graph) -> set[fx.Node]:
    """The nodes in whose memory a result of the graph may lie."""
    found: set[fx.Node] = set()
    stack = list(graph.output_node().all_input_nodes)
    while stack:
        node = stack.pop()
        if node in found:
            continue
        found.add(node)
        if node.op != "call_function":
            continue
        if node.target is getitem or not isinstance(node.target, OpOverload) or _is_view(node):
            stack += node.all_input_nodes
    return found


def _folding(gm: fx.GraphModule, border: Sequence[fx.Node]) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The graph of what the border's nodes follow from, and the places of the inputs that it takes."""
    needed = _behind(border, frozenset())
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in gm.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in border)).meta["val"] = tuple(node.meta["val"] for node in border)
    places = [place for place, node in enumerate(gm.graph.find_nodes(op="placeholder")) if node in needed]
    return _LazyGraphModule(gm, graph), tuple(places)


def _main(
    gm: fx.GraphModule, border: Sequence[fx.Node], constants: Container[fx.Node]
) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """The graph that reads the border's values, and the places of the inputs of ``gm`` that it still takes."""
    inputs = gm.graph.find_nodes(op="placeholder")
    needed = _behind([node for node in gm.graph.nodes if node not in constants], frozenset(border))
    kept = [place for place, node in enumerate(inputs) if node in needed or not is_frozen_input(node)]
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for place in kept:
        copies[inputs[place]] = graph.node_copy(inputs[place])
    for node in border:
        copies[node] = graph.placeholder(f"folded_{node.name}")
        copies[node].meta = {"val": node.meta["val"], "static": True, "opaque": is_packing(node.target)}
    for node in gm.graph.nodes:
        if node in needed and node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return _LazyGraphModule(gm, graph), tuple(kept)


def _behind(ends: Iterable[fx.Node], border: Set[fx.Node]) -> set[fx.Node]:
    """``ends`` and all that they follow from, what lies behind the border left out."""
    found: set[fx.Node] = set()
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += () if node in border else node.all_input_nodes
    return found
