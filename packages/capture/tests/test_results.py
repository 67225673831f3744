"""Results whose history a graph cannot hand on, and what is made of them."""

from __future__ import annotations

import torch
from both_ways import recorded

from flambeau_capture.results import end_history


def test_a_history_that_ended():
    """The tensor itself gets it, no write is counted; a gradient that comes to it raises, also by way of a leaf it leads to."""
    leaf, result = torch.ones(3, requires_grad=True), torch.ones(3)
    end_history("it was freed", result, leaf)
    assert result.requires_grad
    assert not result.is_leaf
    assert result._version == 0
    for differentiate in (lambda: result.sum().backward(), lambda: torch.autograd.grad(result.sum(), leaf)):
        try:
            differentiate()
        except RuntimeError as error:
            assert str(error) == "it was freed"
        else:
            raise AssertionError("nothing was raised")


def test_a_history_without_leaves_outside():
    """Where it led to nothing that is left, it raises all the same."""
    result = torch.ones(())
    end_history("it was freed", result)
    assert not result.is_leaf


def test_a_result_is_cut_off_in_the_graph():
    """The graph hands on no history that is gone: a backend that differentiates it ahead of time would fail."""
    weight, graphs = torch.ones(3, requires_grad=True), []

    def run(x):
        loss = (weight * x).sum()
        loss.backward()
        return loss, x * weight

    loss, other = recorded(run, graphs, fullgraph=True)(torch.ones(3))
    values = [node.meta["val"].requires_grad for node in graphs[0].graph.output_node().args[0]]
    assert values[:2] == [False, True]
    assert loss.requires_grad
    assert other.grad_fn is not None
