"""Which FX nodes become library calls after a generator refused their kernels.

In: the graph, the nodes that are library calls already, the origins of the refused kernels. Out: a larger set of nodes, until
every call is in it: each round of ``pipeline.compile_graph`` gets nearer to a program that needs no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import getitem

from torch import fx


def widen(gm: fx.GraphModule, library: frozenset[str], origins: Iterable[str]) -> frozenset[str]:
    """``library`` and the calls behind ``origins``; where those are in it already, the calls they take values from; then all."""
    # Those of bodies count as well; where names are the same, all become library calls in the end.
    graphs = [module.graph for module in gm.modules() if isinstance(module, fx.GraphModule)]
    calls = {node.name: node for graph in graphs for node in graph.nodes if node.op == "call_function"}
    # A part of a result is named by its getitem, and computed by the call that it is taken from.
    named = {_call(calls[origin]) for origin in origins if origin in calls}
    wider = library | {node.name for node in named}
    if wider == library:
        # What is refused is a value that the call reads, computed where it is read.
        wider |= {_call(source).name for node in named for source in node.all_input_nodes if source.name in calls}
    return wider if wider != library else library | frozenset(calls)


def _call(node: fx.Node) -> fx.Node:
    while node.target is getitem and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node
