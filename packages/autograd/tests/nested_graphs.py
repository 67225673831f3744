"""Torch-level graphs with higher-order operators, by hand.

`lifted(count, function)`: function(hop, *inputs) on fx proxies -> GraphModule; `hop(name, *args)` calls an operator, bodies are graph modules.
`check` compares such a graph with a formula in Python.
"""

from __future__ import annotations

import pytest
import torch
from lifting import compile_graph, fakes, interpret
from torch.fx import Graph, GraphModule, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer
from torch.utils import _pytree as pytree

from flambeau_autograd import prepare
from flambeau_autograd.passes.facts import alias_root

DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])


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


def R(*shape):
    return torch.randn(*shape).requires_grad_()


def prepared(gm, inputs, dynamic=False, config=None):
    return prepare(gm, fakes(inputs, dynamic), config=config)


def check(gm, formula, inputs, dynamic=False):
    """The graph against the formula in eager; for an input that the formula's branch does not use, zeros count as no gradient."""
    _check_bodies(prepared(gm, inputs, dynamic))
    for compiler in (interpret, lambda half, _: half.forward):
        _check_compiled(compile_graph(gm, inputs, dynamic=dynamic, compiler=compiler), formula, inputs)


def _check_compiled(compiled, formula, inputs):
    ours = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]
    got, want = list(compiled(*ours)), list(formula(*theirs))
    torch.testing.assert_close(got, want)
    assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
    pairs = [(a, b, torch.randn_like(b)) for a, b in zip(got, want) if b.requires_grad]
    if not pairs:
        return
    sum((a * w).sum() for a, _, w in pairs).backward()
    sum((b * w).sum() for _, b, w in pairs).backward()
    for mine, wanted in zip(ours, theirs):
        if wanted.grad is None:
            assert mine.grad is None or not mine.grad.any()
        else:
            torch.testing.assert_close(mine.grad, wanted.grad)


def _check_bodies(result):
    """Bodies are functional: no write, no result in memory that something else shows."""
    for half in filter(None, (result.forward, result.backward)):
        for body in half.modules():
            if body is half or not isinstance(body, GraphModule):
                continue
            body.graph.lint()
            (output,) = body.graph.find_nodes(op="output")
            results = output.args[0] if isinstance(output.args[0], (tuple, list)) else [output.args[0]]
            roots = [alias_root(node) for node in results if node is not None]
            assert len(set(roots)) == len(roots) and all(root.op == "call_function" for root in roots)
            assert not any(getattr(n.target, "_schema", None) and n.target._schema.is_mutable for n in body.graph.nodes)


def sign(value):
    return torch.full((3,), float(value))


def of(count, call):
    """The first results of a call."""
    return tuple(call[i] for i in range(count))
