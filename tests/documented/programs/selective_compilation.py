"""Parts of a program: submodules, layers that are alike, regions in which breaks are errors."""

from __future__ import annotations

import contextlib
import io

import torch
from tests.documented.facts import documented, largest_difference
from torch import nn
from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs


@documented("a part of a model is compiled alone: the submodule in its place, the rest stays eager")
def a_submodule() -> None:
    counter = CompileCounter()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            hidden = self.encoder(x)
            return self.head(hidden if hidden.sum() > 0 else -hidden)

    model = Model()
    x = torch.randn(3, 4)
    expected = model(x)
    model.encoder = torch.compile(model.encoder, backend=counter, fullgraph=True)
    assert largest_difference(model(x), expected) < 1e-6
    assert counter.frame_count == 1


@documented(
    "regional compilation: layers that are alike, each compiled where it stands, cost one run of the code generator"
)
def layers_that_are_alike() -> None:
    torch._dynamo.utils.counters.clear()
    layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(4)])
    x = torch.randn(2, 6)
    with torch.no_grad():
        expected = x
        for layer in layers:
            expected = layer(expected)
        for number, layer in enumerate(layers):
            layers[number] = torch.compile(layer, fullgraph=True)
        found = x
        for layer in layers:
            found = layer(found)
    assert largest_difference(found, expected) < 1e-5
    counts = torch._dynamo.utils.counters["inductor"]
    assert counts["fxgraph_cache_miss"] <= 1 <= counts["fxgraph_cache_miss"] + counts["fxgraph_cache_hit"] <= 4


@documented(
    "`nested_compile_region`: a function that is called several times is one body, which the compiled graph calls"
)
def nested_regions() -> None:
    @torch.compiler.nested_compile_region
    def block(x, w):
        return torch.tanh(x @ w) * 2 + x.sin()

    def model(x, w):
        return block(block(x, w), w)

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        torch._logging.set_logs(aot_graphs=True)
        found = torch.compile(model, fullgraph=True, options={"force_disable_caches": True})(x, w)
        torch._logging.set_logs()
    assert largest_difference(found, model(x, w)) < 1e-6
    text = stream.getvalue()
    assert text.count("invoke_subgraph") >= 2, text


@documented(
    "`error_on_graph_break`: a break is an error where it is switched on, and none where it is switched off again"
)
def breaks_that_are_errors() -> None:
    @torch._dynamo.error_on_graph_break(False)
    def may_break(x):
        x = x + 2
        torch._dynamo.graph_break()
        return x + 2

    def must_not(x):
        torch._dynamo.graph_break()
        return x + 1

    @torch._dynamo.error_on_graph_break(True)
    @torch.compile(backend="eager")
    def allowed(x):
        return may_break(x) + 1

    @torch._dynamo.error_on_graph_break(True)
    @torch.compile(backend="eager")
    def refused(x):
        return must_not(x) + 1

    assert allowed(torch.zeros(2)).tolist() == [5, 5]
    try:
        refused(torch.zeros(2))
    except torch._dynamo.exc.Unsupported:
        pass
    else:
        raise AssertionError("no error")


@documented("`allow_in_graph` puts a function into the graph as one call, unseen inside")
def one_call_in_the_graph() -> None:
    recorded = EagerAndRecordGraphs()

    @torch.compiler.allow_in_graph
    def opaque(x):
        return torch.tanh(x) * 2

    compiled = torch.compile(lambda x: opaque(x) + 1, backend=recorded, fullgraph=True)
    x = torch.randn(4)
    assert largest_difference(compiled(x), torch.tanh(x) * 2 + 1) < 1e-6
    (graph,) = recorded.graphs
    targets = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert opaque in targets and len(targets) == 2
