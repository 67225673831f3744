"""Calls that are one node whatever they do inside: what they take and give, what is guarded, what is refused."""

from __future__ import annotations

import collections
import importlib
from typing import Any, NamedTuple

import pytest
import torch
from both_ways import eager, recorded
from torch.utils import _pytree as pytree

from flambeau_capture import GraphBreakError, make_region, nonstrict_trace

X = torch.arange(6.0).reshape(2, 3)


class Point(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Box:
    def __init__(self, inside: Any, label: str) -> None:
        self.inside, self.label = inside, label


pytree.register_pytree_node(Box, lambda box: ([box.inside], box.label), lambda parts, label: Box(parts[0], label))


def check(function, *calls, graphs=1):
    graph_list: list = []
    region = recorded(function, graph_list, fullgraph=True)
    for args in calls:
        torch.testing.assert_close(region(*args), function(*args))
    assert len(graph_list) == graphs
    return graph_list


def test_containers_and_registered_classes_go_in_and_out():
    @nonstrict_trace
    def inner(box, *rest, pairs, **named):
        return [
            Point(box.inside[0], box.inside[1]["k"]),
            collections.OrderedDict(a=rest[0], b=(named["more"] + 1, None, "text")),
            Box([box.inside[0] * pairs["n"]], box.label),
        ]

    def f(x, n):
        given = Box((x.sin(), {"k": x}), "here")
        point, ordered, box = inner(given, x + 1, pairs={"n": n}, more=x)
        assert type(point) is Point and type(ordered) is collections.OrderedDict and box.label == "here"
        assert ordered["b"][1] is None and ordered["b"][2] == "text"
        return point.x + point.y, ordered["a"], ordered["b"][0], box.inside[0]

    check(f, (X, 2), (X, 2))
    check(f, (X, 2), (X, 3), (X, 4), graphs=2)
    check(f, (X, 2), (torch.ones(4, 3), 2), (torch.ones(5, 3), 2), graphs=2)


def test_a_module_is_an_argument_with_its_tensors_and_modes():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.0))
    calling = nonstrict_trace(lambda net, x: net(x))

    def f(x):
        return calling(net, x) * 2

    expected, region = [], make_region(f, eager, fullgraph=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for run in (lambda x: net(x) * 2, region):
        net.load_state_dict(before)
        for mode in (True, False, True):
            expected.append([run_in(net, mode, run), *(value.clone() for value in net.buffers())])
    torch.testing.assert_close(expected[:3], expected[3:])
    with torch.no_grad():
        net[0].weight.zero_()
    torch.testing.assert_close(region(X), net(X) * 2)


def run_in(net, mode, run):
    return run(X) if net.train(mode) else None


def test_what_it_returns_beside_tensors_must_stay():
    counts: list[int] = []

    @nonstrict_trace
    def counting(x):
        counts.append(1)
        return x + 1, len(counts)

    region = make_region(lambda x: counting(x)[0], eager, fullgraph=True)
    with pytest.raises(RuntimeError, match=r"counting returns \('tensor', \d\), and returned"):
        region(X)


def test_numbers_that_it_returns_are_symbolic_in_the_trace_alone():
    inner = nonstrict_trace(lambda x, n: (x[:n], x.shape[0] * n, x.shape[0] / 2, 7))

    def f(x, n):
        part, count, half, seven = inner(x, n)
        return part * count + half + seven, (count, half)

    check(f, *((torch.ones(rows, 2), n) for rows, n in ((4, 2), (5, 3), (6, 4))), graphs=2)


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("total", torch.zeros(()))
        self.register_buffer("last", None)

    def forward(self, x):
        self.total, self.last = self.total + x.sum(), x
        return x * self.total * self.weight


def test_what_a_call_assigns_to_its_module_is_not_lost():
    plain, net = Counting(), Counting()
    calling = nonstrict_trace(lambda net, x: net(x))
    records: list = []
    region = make_region(lambda x: calling(net, x) + 1, eager, observer=records.append)
    for x in (X, X + 1):
        torch.testing.assert_close(region(x), plain(x) + 1)
        torch.testing.assert_close([net.total, net.last], [plain.total, plain.last])
    assert any("assigns last, total of a Counting" in found.reason for record in records for found in record.breaks)


def test_tensors_that_it_closes_over():
    weight = torch.ones(3)
    scaled = nonstrict_trace(lambda x: x * weight)
    check(lambda x: scaled(x) + 1, (X,))
    weight.requires_grad_()
    records: list = []
    region = make_region(lambda x: scaled(x) + 1, eager, observer=records.append)
    assert region(X).requires_grad
    assert any("not among its arguments" in found.reason for record in records for found in record.breaks)


def test_what_the_program_told_torch():
    traced = importlib.import_module("torch._dynamo").nonstrict_trace(lambda point: [point.x + point.y])
    (graph,) = check(lambda x: traced(Point(x, x + 1))[0], (X,))
    assert any("nonstrict" in node.name for node in graph.graph.nodes)


def test_what_is_refused():
    class Unknown:
        pass

    inner = nonstrict_trace(lambda x, other: x + 1)
    with pytest.raises(GraphBreakError, match="not registered"):
        make_region(inner_of(inner, Unknown()), eager, fullgraph=True)(X)
    with pytest.raises(GraphBreakError, match="do not know"):
        make_region(lambda x: inner(x, Unknown()), eager, fullgraph=True)(X)
    with pytest.raises(GraphBreakError, match="made in compiled code"):
        make_region(lambda x: nonstrict_trace(lambda x: x)(x), eager, fullgraph=True)(X)
    with pytest.raises(TypeError, match="nonstrict_trace takes"):
        nonstrict_trace(3)


def inner_of(inner, given):
    return lambda x: inner(x, given)
