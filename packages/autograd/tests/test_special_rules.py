"""Ops with a rule of their own: what is recorded gives eager's values, layouts and gradients, and what cannot be recorded is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from lifting import check_function, clones, compile_function, compile_graph
from torch.fx import Graph, GraphModule

from flambeau_autograd import UnsupportedGraph

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
