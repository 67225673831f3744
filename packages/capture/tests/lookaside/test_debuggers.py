"""What leads to a debugger runs in plain Python, and is stepped through as such; what it calls is compiled."""

from __future__ import annotations

import bdb
import importlib
import sys

import pytest
import torch
from both_ways import recorded

from flambeau_capture import GraphBreakError, graph_break

pytestmark = pytest.mark.usefixtures("own_tracer")


class Stepper(bdb.Bdb):
    """Steps over each line; keeps where it stopped, with the names that are bound there."""

    def __init__(self):
        super().__init__()
        self.stops = []

    def user_line(self, frame):
        self.stops.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
        if frame.f_code.co_name == "stops_of":
            self.set_continue()
        else:
            self.set_next(frame)


STEPPER = Stepper()


def helper(x):
    return x.sin() + 1


def breaks(x):
    unread = x * 3  # noqa: F841  a debugger shows it
    y = x + 1
    breakpoint()
    z = y * 2
    return helper(z)


def starts_one(x):
    y = x + 1
    STEPPER.set_trace()
    z = y * 2
    return z


def calls_one_that_breaks(x):
    unread = x * 3  # noqa: F841  a debugger shows it
    y = breaks(x)
    z = y + 1
    return z


def in_a_loop(x):
    for i in range(2):
        x = x + i
        breakpoint()
        x = x * 2
    return x


def stops_of(function):
    STEPPER.stops = []
    try:
        result = function(torch.ones(2))
    finally:
        sys.settrace(None)
    return [stop for stop in STEPPER.stops if stop[0] != "stops_of"], result


@pytest.mark.parametrize("program", [breaks, starts_one, calls_one_that_breaks, in_a_loop])
def test_stepping_is_that_of_plain_python(program, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: STEPPER.set_trace(sys._getframe(1)))
    expected, result = stops_of(program)
    graphs = []
    region = recorded(program, graphs)
    assert len(expected) >= 2
    for _ in range(2):
        stops, found = stops_of(region)
        assert stops == expected
        assert torch.equal(found, result)


def test_what_is_stepped_over_is_compiled(monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: STEPPER.set_trace(sys._getframe(1)))
    graphs = []
    stops_of(recorded(breaks, graphs))
    assert [[node.name for node in graph.graph.nodes if node.op != "placeholder"] for graph in graphs] == [
        ["sin", "add", "output"]
    ]


def test_pdb_is_known_by_its_functions(monkeypatch):
    monkeypatch.delitem(sys.modules, "pdb")
    pdb = importlib.import_module("pdb")  # pytest puts a function of its own in the place of the module's
    entered = []
    monkeypatch.setattr(pdb.Pdb, "set_trace", lambda self, *frame, **options: entered.append(frame))

    def stops(x):
        y = x + 1
        pdb.set_trace()
        return y * 2

    graphs = []
    assert torch.equal(recorded(stops, graphs)(torch.ones(2)), torch.full((2,), 4.0))
    assert len(entered) == 1 and not graphs


def test_a_trace_function_of_the_program():
    """It sees what runs in Python line by line, and a graph before that as its first line; what is a graph alone has no frame."""
    lines = []

    def trace(frame, event, argument):
        if event == "line" and frame.f_code.co_filename == __file__:
            lines.append(frame.f_lineno)
        return trace

    def partly(x):
        y = x.sin() + 1
        graph_break()
        return y * 2

    def traced(x):
        sys.settrace(trace)
        y = partly(x)
        sys.settrace(None)
        return y

    first = partly.__code__.co_firstlineno + 1
    expected = traced(torch.ones(2))
    assert lines == [first, first + 1, first + 2]
    region = recorded(traced, [])
    for _ in range(2):
        lines.clear()
        assert torch.equal(region(torch.ones(2)), expected)
        assert lines == [first, first + 1]


def test_one_graph_is_asked_for():
    with pytest.raises(GraphBreakError, match="a debugger or a trace function is started"):
        recorded(breaks, [], fullgraph=True)(torch.ones(2))
