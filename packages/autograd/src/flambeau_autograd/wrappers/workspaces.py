"""Kernels that keep a workspace for the gradient only where grad mode is on, in a graph that holds that gradient too.

In: a graph without a backward of its own, and the callable that runs it op by op. Out: the callable, in the grad mode that the graph needs.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any, Final

import torch
from torch.fx import Graph, Node

#: Op -> the result that is the workspace.
_WORKSPACES: Final[dict[Any, int]] = {torch.ops.aten.mkldnn_rnn_layer.default: 3}


def with_workspaces(graph: Graph, forward: Callable[..., Any]) -> Callable[..., Any]:
    """The same callable; with gradients enabled, where a call of the graph is given the workspace of another."""
    if not any(_reads_workspace(node) for node in graph.nodes):
        return forward

    def call(*args: Any) -> Any:
        with torch.enable_grad():
            return forward(*args)

    if getattr(forward, "_boxed_call", False):
        call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _reads_workspace(node: Node) -> bool:
    if node.target is not getitem or not isinstance(node.args[0], Node):
        return False
    return _WORKSPACES.get(node.args[0].target) == node.args[1] and any(user.op != "output" for user in node.users)
