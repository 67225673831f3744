"""What is told of a trace while it goes on: only what was asked for by name, to the one who asked."""

from __future__ import annotations

import linecache

import pytest
import torch
from both_ways import eager

from flambeau_capture import log, make_region


class Asking:
    """A destination of events that keeps them."""

    def __init__(self, *names):
        self.names = names
        self.events = []

    def asks_for(self, artifact):
        return artifact in self.names

    def __getattr__(self, method):
        return lambda event, **values: self.events.append({"event": event, **values})

    def of(self, name):
        return [event for event in self.events if event["event"] == name]


@pytest.fixture
def told():
    """What a destination that asks for names is told of a function."""

    def run(function, *names):
        asking = Asking(*names)
        log.logger.send_to(asking)
        region = make_region(function, eager, fullgraph=True)
        assert torch.equal(region(torch.ones(2)), function(torch.ones(2)))
        return asking

    before = log.logger._destination
    yield run
    log.logger.send_to(before)


def inner(x):
    return x + 1


def outer(x):
    # Two calls in one line, each of which comes back to it.
    y = inner(x); z = inner(y)  # fmt: skip  # noqa: E702
    return torch.cat(
        [y, z],
    )


FIRST = outer.__code__.co_firstlineno + 1


def test_lines_are_told_where_they_change(told):
    asking = told(outer, "trace_source")
    at = [(event["function"], int(event["at"].rpartition(":")[2])) for event in asking.of(log.TRACE_SOURCE)]
    inside = ("inner", inner.__code__.co_firstlineno + 1)
    assert at[:5] == [("outer", FIRST + 1), inside, ("outer", FIRST + 1), inside, ("outer", FIRST + 1)]
    assert at[5:][0] == ("outer", FIRST + 2) and ("outer", FIRST + 3) in at
    assert asking.of(log.TRACE_SOURCE)[1]["source"] == "return x + 1"
    assert asking.of(log.TRACE_SOURCE)[0]["artifact"] == "trace_source"
    assert not asking.of(log.TRACE_CALL) and not asking.of(log.TRACE_BYTECODE)


def test_calls_have_a_mark_under_them(told):
    """Of a call of several lines, under what the first one has of it."""
    first, second, third = (event["source"].splitlines() for event in told(outer, "trace_call").of(log.TRACE_CALL))
    assert first[0] == second[0] == linecache.getline(__file__, FIRST + 1).rstrip("\n")
    assert first[1] == "        ^^^^^^^^"
    assert second[1] == "                      ^^^^^^^^"
    assert third == ["    return torch.cat(", "           ^^^^^^^^^^"]


def test_a_mark_stands_under_letters_of_several_bytes(told):
    def greek(x):
        λ = x
        return torch.sin(λ + len("λλ")) + torch.cos(λ)

    marks = [event["source"].splitlines() for event in told(greek, "trace_call").of(log.TRACE_CALL)]
    under = [text[len(mark) - len(mark.lstrip()) : len(mark)] for text, mark in marks]
    assert sorted(under) == ['len("λλ")', "torch.cos(λ)", 'torch.sin(λ + len("λλ"))']


def test_instructions_are_told_with_the_stack_before_them(told):
    asking = told(inner, "trace_bytecode")
    (added,) = [event for event in asking.of(log.TRACE_BYTECODE) if event["instruction"].startswith("BINARY_OP")]
    assert added["instruction"] == "BINARY_OP '+'"
    assert added["stack"].startswith("[") and added["stack"].count(",") >= 1 and "tensor" in added["stack"]
    assert not asking.of(log.TRACE_SOURCE)


def test_nobody_who_does_not_ask_is_told(told):
    assert not [event for event in told(outer, "bytecode").events if event["event"].startswith("trace_")]
