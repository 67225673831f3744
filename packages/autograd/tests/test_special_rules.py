"""Ops with a rule of their own: what is recorded gives eager's values, layouts and gradients, and what cannot be recorded is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import check_function, clones, compile_function, compile_graph, fakes, lift_function
from torch.fx import Graph, GraphModule
from torch.utils._pytree import tree_leaves

from flambeau_autograd import UnsupportedGraph, prepare

aten = torch.ops.aten
LAYOUTS = {
    "contiguous": torch.linspace(-2, 2, 20).view(4, 5),
    "transposed": torch.linspace(-2, 2, 20).view(5, 4).t(),
    "channels last": torch.linspace(-2, 2, 96).view(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "with gaps": torch.linspace(-2, 2, 40).view(4, 10)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_slopes(layout: str) -> None:
    """The same draws as eager's, and the slopes that were drawn are those of the gradient."""
    check_function(lambda x: F.rrelu(x, 0.1, 0.4, training=True), [LAYOUTS[layout].requires_grad_()])


FILLS = {
    "uniform_": lambda x: x.uniform_(2.0, 3.0),
    "normal_": lambda x: x.normal_(5.0, 0.1),
    "bernoulli_": lambda x: x.bernoulli_(0.9),
    "random_": lambda x: x.random_(3, 7),
    "exponential_": lambda x: x.exponential_(0.1),
}


@pytest.mark.parametrize("name", FILLS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_fills(layout: str, name: str) -> None:
    """Each element gets the draw that eager gives it, with the fill's own arguments."""
    check_function(lambda x: FILLS[name](torch.empty_like(x)) + x, [LAYOUTS[layout].detach()])


@pytest.mark.parametrize(("low", "high"), [(3, 7), (-5, 100), (0, 1), (0, 2), (-30, 1), (0, 300), (5, None)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_draws_between_two_numbers(dtype: torch.dtype, low: int, high: int | None) -> None:
    """Eager's draws; where moving them would not be exact, the graph is left to eager, and what eager refuses is refused."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return x.clone().random_(low, high)

    given = [torch.zeros(40).to(dtype)]
    try:
        function(given[0])
    except RuntimeError:
        return
    exact = high is not None and dtype is not torch.bool and (high < 300 or dtype is not torch.bfloat16)
    if exact and not (dtype is torch.uint8 and high > 128):
        check_function(function, given)
    else:
        with pytest.raises(UnsupportedGraph):
            compile_function(function, given)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_a_half_group_norm_are_kept_in_float32(dtype: torch.dtype) -> None:
    """As eager keeps them on the CPU under float32 weights: the gradient of numbers far from zero needs them."""
    x = (torch.linspace(-1, 1, 256).view(64, 4).sin() * 0.1 + 4).to(dtype).requires_grad_()
    given = [x, torch.ones(4, requires_grad=True), torch.zeros(4, requires_grad=True)]

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return F.group_norm(x, 2, weight, bias) * torch.linspace(-1, 1, 4, dtype=x.dtype)

    wide = [t.detach().double().requires_grad_() for t in given]
    norm(*wide).sum().backward()
    ours, theirs = clones(given), clones(given)
    compile_function(norm, given)(*ours)[0].sum().backward()
    norm(*theirs).sum().backward()
    errors = [float((side[0].grad.double() - wide[0].grad).norm()) for side in (ours, theirs)]
    assert errors[0] <= 2 * errors[1]


def graph_that_calls(function: object, *sizes: int) -> GraphModule:
    """`function` of `x` and a tensor that is made in the graph."""
    graph = Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.zeros, (sizes,))
    graph.call_function(function, (x, made))
    graph.output((made,))
    return GraphModule(torch.nn.Module(), graph)


def test_a_write_that_changes_the_size_is_refused() -> None:
    with pytest.raises(UnsupportedGraph, match="resizes its target"):
        compile_graph(graph_that_calls(lambda x, made: aten.add.out(x, x, out=made), 0), [torch.ones(3)])


def test_an_operator_that_changes_a_shape_as_nobody_else_does_is_refused() -> None:
    """A library's, without a view that does the same to a new tensor."""
    library = torch.library.Library("flambeau_rules", "FRAGMENT")
    library.define("turn_(Tensor(a!) x) -> Tensor(a!)", tags=(torch.Tag.inplace_view,))
    library.impl("turn_", lambda x: x.t_(), "CompositeExplicitAutograd")
    with pytest.raises(UnsupportedGraph, match="no functional twin"):
        compile_graph(graph_that_calls(lambda x, made: torch.ops.flambeau_rules.turn_(made), 2, 3), [torch.ones(3)])


def test_values_of_nodes_keep_nothing_of_the_trace_alive() -> None:
    """No autograd graph hangs on what the nodes show."""
    given = [torch.ones(3, requires_grad=True)]
    prepared = prepare(lift_function(lambda x: (x * 2).exp().sum(), given), fakes(given))
    assert prepared.backward is not None
    for graph in (prepared.forward, prepared.backward):
        shown = [
            t for node in graph.graph.nodes for t in tree_leaves(node.meta.get("val")) if isinstance(t, torch.Tensor)
        ]
        assert shown and not any(t.grad_fn for t in shown)
