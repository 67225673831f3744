"""Where the nodes of a graph come from, as plain data.

In: a graph whose nodes carry `meta["stack"]`. Out: node name -> positions, the outermost first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

Positions = dict[str, list[list[Any]]]


def positions_of(graph: fx.GraphModule) -> Positions:
    """The positions of all nodes that compute something, those of nested graphs included."""
    found: Positions = {}
    for module in graph.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                stack = node.meta.get("stack")
                if stack and node.op not in ("placeholder", "output"):
                    found[node.name] = [[str(at[0]), int(at[1]), str(at[2])] for at in stack]
    return found


def files_of(positions: Mapping[str, list[list[Any]]]) -> list[str]:
    """The files that positions name."""
    return list(dict.fromkeys(at[0] for stack in positions.values() for at in stack))
