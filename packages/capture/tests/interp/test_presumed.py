"""`assert` and `if ...: raise` of what tensors hold are checks of one graph; where they fail, plain Python raises in its own words."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, outcome, recorded

from .raising_programs import after, asserted, caught, in_a_loop, raised

X = torch.linspace(1, 3, 6)


@pytest.mark.parametrize("function", [asserted, raised, after, caught, in_a_loop])
def test_one_graph(function):
    """For values that pass and for those that do not."""
    graphs = []
    region = recorded(function, graphs, fullgraph=True)
    for x in (X, -X, X * 0, X * 30, X):
        assert_equal(outcome(region, x), outcome(function, x))
    (graph,) = graphs
    assert any(node.target in (torch._check, torch._assert_async) for node in graph.graph.nodes)


def test_other_branches_break(broken):
    """Where both sides raise, or the side that raises does something else on its way."""

    def both(x):
        if x.sum() > 0:
            raise ValueError("positive")
        raise TypeError("not positive")

    def sometimes(x):
        if x.sum() > 0:
            if x.ndim > 3:
                raise ValueError("many dimensions")
            x = x + 1
        return x

    for function in (both, sometimes):
        assert "data-dependent-branch" in broken(function)


def test_not_is_a_number_of_the_graph(check):
    """`not` of a tensor and of its numbers."""
    check(lambda x: (not (x > 2).any(), not x.sum().item(), not x.argmax().item()))
