"""Which FX nodes become library calls after a generator refused their kernels.

In: the graph, the nodes that are library calls already, the origins of the refused kernels. Out: a larger set of nodes, until
every call is in it: each round of ``pipeline.compile_graph`` gets nearer to a program that needs no kernel.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import fx


def widen(gm: fx.GraphModule, library: frozenset[str], origins: Iterable[str]) -> frozenset[str]:
    """``library`` and the calls named by ``origins``; all calls where those are in it already."""
    # Those of bodies count as well; where names are the same, all become library calls.
    graphs = [module.graph for module in gm.modules() if isinstance(module, fx.GraphModule)]
    calls = {node.name for graph in graphs for node in graph.nodes if node.op == "call_function"}
    wider = library | calls.intersection(origins)
    return wider if wider != library else library | calls
