"""A function, a module, what they call, and what cannot be one graph."""

from __future__ import annotations

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn


@documented("`torch.compile` is a decorator: the function gives the results that it gave before")
def decorated_function() -> None:
    def formula(x, y):
        return torch.sin(x) + torch.cos(y)

    @torch.compile
    def compiled(x, y):
        return torch.sin(x) + torch.cos(y)

    x, y = torch.randn(10), torch.randn(10)
    assert largest_difference(compiled(x, y), formula(x, y)) < 1e-6


@documented("a module is compiled by calling `torch.compile` on it, and trains as before: outputs and gradients")
def compiled_module() -> None:
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            return nn.functional.relu(self.layer(x))

    model = Block()
    compiled = torch.compile(model)
    x = torch.randn(4, 8)
    model(x).sum().backward()
    expected = model.layer.weight.grad.clone()
    model.zero_grad()
    compiled(x).sum().backward()
    assert largest_difference(compiled(x), model(x)) < 1e-6
    assert largest_difference(model.layer.weight.grad, expected) < 1e-5


@documented("functions that a compiled one calls are compiled with it, in the same graph")
def nested_calls() -> None:
    graphs = []

    def keeping(graph, inputs):
        graphs.append(graph)
        return graph.forward

    def inner(x):
        return torch.tanh(x) * 2

    @torch.compile(backend=keeping)
    def outer(x):
        return inner(x) + inner(x + 1)

    x = torch.randn(5)
    assert largest_difference(outer(x), inner(x) + inner(x + 1)) == 0
    assert len(graphs) == 1
    assert sum(node.op == "call_function" and "tanh" in str(node.target) for node in graphs[0].graph.nodes) == 2


@documented("a branch on a tensor's values ends the graph: both sides give eager's results, each as a graph of its own")
def data_dependent_branch() -> None:
    graphs = []

    def keeping(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=keeping)
    def step(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    a, b = torch.randn(10), torch.ones(10)
    expected = a / (torch.abs(a) + 1)
    assert largest_difference(step(a, b), expected) == 0
    assert len(graphs) == 2
    assert largest_difference(step(a, -2 * b), expected * 2) == 0
    assert len(graphs) == 3


@documented(
    "with `fullgraph=True` a graph break is an error that names the line",
    judges_itself="an error is what is documented",
)
def one_graph_or_an_error() -> None:
    @torch.compile(fullgraph=True, backend="eager")
    def step(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    try:
        step(torch.ones(3))
    except torch._dynamo.exc.Unsupported as error:
        assert "if x.sum() > 0:" in str(error)
    else:
        raise AssertionError("no error")
