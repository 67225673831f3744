"""What an operation takes for granted of sizes that depend on values is checked before it; where it does not hold, plain Python runs the frame."""

from __future__ import annotations

import torch
from both_ways import assert_equal, eager, outcome, recorded

from flambeau_capture import make_region

X = torch.tensor([1.0, -1.0, 2.0, 3.0])


def _checks(graph):
    return sum(node.target is torch._check for node in graph.graph.nodes)


def test_sizes_that_are_added_are_equal():
    """Where they are not, one element is broadcast as in eager, or eager's error comes."""
    graphs = []

    def add(x, y):
        return (x[x > 0] + y[y > 0], x[x > 0].shape[0])

    region = recorded(add, graphs, fullgraph=True)
    for y in (X + 0, -X, X * 0, torch.tensor([1.0, 1.0, -1.0, -1.0])):
        assert_equal(outcome(region, X, y), outcome(add, X, y))
    (graph,) = graphs
    assert _checks(graph) == 1 and graph.meta["is_open"] and graph.meta["starts_anew"]


def test_the_program_checks_itself():
    """In its own words, for integers and for floats; what it checked is known from there on."""

    def checked(x):
        n, total = x.argmax().item(), x.sum().item()
        torch._check(n < 3, lambda: f"{n} is too large")
        torch._check_value(total > 0)
        return x + 1 if n < 3 else x

    graphs = []
    region = recorded(checked, graphs, fullgraph=True)
    for x in (X[:3], X, -X[:3], X[:3] * float("nan")):
        assert_equal(outcome(region, x), outcome(checked, x))
    assert [_checks(graph) for graph in graphs][:1] == [2]


def test_a_check_of_what_is_computed_of_floats_breaks(broken):
    """The stages behind compare floats, they do not compute with them."""
    assert broken(lambda x: torch._check(x.sum().item() * 2 > 1)) == {"data-dependent-branch"}


def test_effects_wait_for_the_checks():
    """What the frame does to objects outside is done once."""
    told = []

    def tell(x, y):
        told.append(x.shape)
        return x[x > 0] + y[y > 0]

    region = make_region(tell, eager, fullgraph=True)
    for y in (X, torch.tensor([1.0, -1.0])):
        region(X, y)
    assert len(told) == 2


def test_sizes_depend_on_values_only_where_asked():
    """Without the option such an operation breaks the graph."""
    records = []
    region = make_region(lambda x: x[x > 0] + 1, eager, observer=records.append, capture_dynamic_output_shape_ops=False)
    region(X)
    assert {b.code for record in records for b in record.breaks} == {"dynamic-output-shape"}
