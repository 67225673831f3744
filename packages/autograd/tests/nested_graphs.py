"""Torch-level graphs with higher-order operators, by hand.

`lifted(count, function)`: function(hop, *inputs) on fx proxies -> GraphModule; `hop(name, *args)` calls an operator, bodies are graph modules.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils import _pytree as pytree


class _Hop:
    """Calls of operators in the graph under construction."""

    def __init__(self, graph, root):
        self.graph, self.root, self.tracer = graph, root, GraphAppendingTracer(graph)

    def __call__(self, name, *args):
        node = self.graph.call_function(
            getattr(torch.ops.higher_order, name), pytree.tree_map(self._operand, tuple(args))
        )
        return Proxy(node, self.tracer)

    def _operand(self, value):
        if isinstance(value, GraphModule):
            known = {id(module): key for key, module in self.root.named_children()}
            key = known.get(id(value), f"body_{len(known)}")
            self.root.add_module(key, value)
            return self.graph.get_attr(key)
        return value.node if isinstance(value, Proxy) else value


def lifted(count, function):
    graph, root = Graph(), torch.nn.Module()
    hop = _Hop(graph, root)
    inputs = [Proxy(graph.placeholder(f"x{i}"), hop.tracer) for i in range(count)]
    result = function(hop, *inputs)
    graph.output(pytree.tree_map(lambda v: v.node if isinstance(v, Proxy) else v, result))
    return GraphModule(root, graph)


def operators(gm, name):
    """The nodes of a graph, and of the bodies in it, that call an operator."""
    found = []
    for module in gm.modules():
        if isinstance(module, GraphModule):
            target = getattr(torch.ops.higher_order, name)
            found += [n for n in module.graph.nodes if isinstance(n, Node) and n.target is target]
    return found
