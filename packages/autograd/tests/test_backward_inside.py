"""Graphs that hold a backward: it is differentiated by the trace like any other operation, and runs where its kernels find what they keep."""

from __future__ import annotations

import pytest
import torch
from lifting import compile_graph
from torch.fx import Graph, GraphModule

from flambeau_autograd import aot_autograd


def _graph(function, names, *inputs):
    """`torch.autograd.grad` of `function(*inputs)` by the named inputs, as capture records it."""
    graph = Graph()
    nodes = [graph.placeholder(name) for name in names]
    result = graph.call_function(function, tuple(nodes))
    total = graph.call_method("sum", (result,))
    wanted = tuple(node for node, value in zip(nodes, inputs, strict=True) if value.requires_grad)
    found = graph.call_function(torch.autograd.grad, ((total,), wanted), {"create_graph": True})
    graph.output(
        tuple(
            graph.call_function(torch.Tensor.clone, (graph.call_function(_item, (found, i)),))
            for i in range(len(wanted))
        )
    )
    return GraphModule(torch.nn.Module(), graph)


def _item(values, at):
    return values[at]


def test_the_gradient_of_a_gradient():
    """The inner backward is part of the forward, and has a gradient of its own."""
    x, w = torch.linspace(-1, 1, 6), torch.linspace(0.5, 2, 6).requires_grad_()
    gm = _graph(lambda x, w: (x * w).sin() * w, ["x", "w"], x, w)
    compiled = compile_graph(gm, [x, w])
    seen = []
    for call in (compiled, gm):
        (first,) = call(x, w)
        seen.append((first.detach(), *torch.autograd.grad(first.square().sum(), w)))
    for ours, theirs in zip(*seen, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_recurrent_layer_keeps_its_workspace():
    """Its kernel writes one only with gradients enabled; and the gradients of its two biases are two tensors."""
    layer = torch.nn.LSTM(3, 4)
    x, weights = torch.randn(2, 5, 3), [p.detach().requires_grad_() for p in layer.parameters()]
    h = torch.zeros(1, 5, 4)

    def run(x, h, *weights):
        return torch.lstm(x, (h, h), weights, True, 1, 0.0, True, False, False)[0]

    names = ["x", "h", *(f"w{i}" for i in range(4))]
    gm = _graph(run, names, x, h, *weights)
    for node in gm.graph.find_nodes(op="call_function", target=torch.autograd.grad):
        node.kwargs = {}
    compiled = aot_autograd(fw_compiler=lambda graph, inputs: graph.forward)(gm, [x, h, *weights])
    found, expected = compiled(x, h, *weights), gm(x, h, *weights)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.detach(), theirs)
    assert len({gradient.data_ptr() for gradient in found}) == len(found)


@pytest.mark.parametrize("made", [lambda x: x.detach().requires_grad_(), lambda x: torch.ones(3, requires_grad=True)])
def test_leaves_of_the_graphs_own(made):
    """A gradient may be taken by a tensor that the graph makes."""
    graph = Graph()
    x = graph.placeholder("x")
    leaf = graph.call_function(made, (x,))
    total = graph.call_method("sum", (graph.call_function(torch.mul, (leaf, x)),))
    found = graph.call_function(torch.autograd.grad, ((total,), (leaf,)))
    graph.output((graph.call_function(_item, (found, 0)),))
    gm = GraphModule(torch.nn.Module(), graph)
    given = torch.arange(3.0)
    torch.testing.assert_close(compile_graph(gm, [given])(given), gm(given))
