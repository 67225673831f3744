"""What reaches a backend: boxed callables, which values outlive a break, and attributes a tensor gets later."""

from __future__ import annotations

import torch
from both_ways import eager

from flambeau_capture import make_region


def test_a_boxed_callable_gets_one_list():
    """With and without more to do than the graph, also in modes of the program, and its list may be emptied."""
    seen = []

    def backend(graph, inputs):
        def run(values):
            seen.append(type(values))
            results = graph.forward(*values)
            values.clear()
            return results

        run._boxed_call = True
        return run

    def plain(x, y):
        return x + y

    def more(x, y):
        return {"sum": x + y}, [1]

    def in_inference(x, y):
        with torch.inference_mode():
            return x + y

    def with_gradients(x, y):
        with torch.enable_grad():
            return x + y

    for function in (plain, more, in_inference, torch.no_grad()(with_gradients)):
        region = make_region(function, backend)
        for _ in range(3):
            expected = function(torch.ones(2), torch.ones(2))
            found = region(torch.ones(2), torch.ones(2))
            assert str(found) == str(expected)
    assert set(seen) == {list} and len(seen) == 12


def test_dead_locals_are_no_outputs():
    """Only what the rest of the function reads comes out of the first graph."""
    counts = []

    def backend(graph, inputs):
        counts.append(len(next(n for n in graph.graph.nodes if n.op == "output").args[0]))
        return graph.forward

    def run(x):
        first = x * 2
        second = first + 1
        third = second.sin()
        print(end="")
        return third * 2

    assert torch.equal(make_region(run, backend)(torch.ones(2)), run(torch.ones(2)))
    assert counts == [1, 1]


def test_an_attribute_that_a_tensor_gets_later_is_seen():
    """That it was missing is guarded."""

    def run(x):
        return x + (10 if getattr(x, "tag", None) else 1)

    region = make_region(run, eager)
    x = torch.ones(2)
    assert torch.equal(region(x), x + 1)
    x.tag = True
    assert torch.equal(region(x), x + 10)


def test_a_missing_attribute_costs_no_recompile():
    """A fresh tensor, whose `__dict__` does not exist yet, fits as well."""
    records = []
    region = make_region(lambda x: x + (2 if hasattr(x, "tag") else 1), eager, observer=records.append)
    for _ in range(4):
        region(torch.ones(2))
    assert len(records) == 1


def test_a_region_called_in_a_region_is_part_of_its_graph():
    """The outer backend gets one graph and the inner none; another region under the name is noticed."""
    seen = []

    def backend_called(name):
        def backend(graph, inputs):
            seen.append((name, sum(node.op == "call_function" for node in graph.graph.nodes)))
            return graph.forward

        return backend

    inner = make_region(lambda x: x * 2, backend_called("inner"))
    other = make_region(lambda x: x * 5, backend_called("inner"))

    def outer(x, called):
        return called(x) + 1

    region = make_region(outer, backend_called("outer"))
    x = torch.ones(2)
    assert torch.equal(region(x, inner), x * 2 + 1)
    assert torch.equal(region(x, other), x * 5 + 1)
    assert torch.equal(region(x, inner), x * 2 + 1)
    assert seen == [("outer", 2), ("outer", 2)]
    assert torch.equal(inner(x), x * 2) and seen[2:] == [("inner", 1)]


def test_a_record_tells_the_seconds_of_the_trace_and_of_the_backend_apart():
    records = []
    make_region(lambda x: x + 1, eager, observer=records.append)(torch.ones(2))
    (record,) = records
    assert record.trace_seconds > 0
    assert record.backend_seconds > 0
