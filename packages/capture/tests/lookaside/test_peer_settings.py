"""Settings of torch's own compiler in captured frames: they say nothing of what is traced, and are as in plain Python for who asks for them."""

from __future__ import annotations

import importlib

import pytest
import torch
from both_ways import recorded

from flambeau_capture import graph_break
from flambeau_capture.errors import GraphBreakError

X = torch.arange(4.0)
PEER = importlib.import_module("torch._dynamo")
SETTING = PEER.patch_dynamo_config(capture_scalar_outputs=True)
STRICT = PEER.error_on_graph_break(True)


def is_set() -> bool:
    return PEER.config.capture_scalar_outputs


@pytest.fixture(autouse=True)
def nothing_left():
    """No test leaves a setting entered."""
    assert not is_set()
    yield
    assert not is_set()


def check(function, graphs, calls=2):
    """The function gives the same captured, in so many graphs."""
    found = []
    region = recorded(function, found)
    for _ in range(calls):
        assert torch.equal(region(X), function(X))
        assert not is_set()
    assert len(found) == graphs


def test_one_graph():
    def within(x):
        with SETTING, STRICT:
            y = x * 2
        with SETTING:
            return y + 1

    def raises(x):
        with SETTING, STRICT:
            raise ValueError(x)

    def caught(x):
        try:
            raises(x)
        except ValueError:
            return x * 2

    check(within, 1)
    check(PEER.dont_skip_tracing(lambda x: x.sin() + 1), 1)
    check(caught, 1)


def test_a_break_within():
    """What comes behind the break is called with the setting entered for real."""
    seen = []

    def broken(x):
        with SETTING:
            y = x + 1
            graph_break()
            seen.append(is_set())
            y = y * 2
        seen.append(is_set())
        return y - 1

    region = recorded(broken, [])
    for _ in range(3):
        seen.clear()
        assert torch.equal(region(X), X * 2 + 1)
        assert seen == [True, False]


def test_a_frame_that_enters_and_one_that_leaves():
    def enters(x):
        SETTING.__enter__()
        return x + 1

    def leaves(x):
        y = x * 2
        SETTING.__exit__(None, None, None)
        return y

    first, second = recorded(enters, []), recorded(leaves, [])
    for _ in range(3):
        assert torch.equal(first(X), X + 1) and is_set()
        assert torch.equal(second(X), X * 2) and not is_set()


def test_reads():
    """A frame that changed a setting is not asked for it: plain Python answers."""

    def read_within(x):
        with SETTING:
            y = x * (2 if is_set() else 3)
        return y * (5 if is_set() else 7)

    def read_behind(x):
        with SETTING:
            y = x * 2
        return y * (5 if is_set() else 7)

    check(read_within, 2)
    check(read_behind, 1)
    with pytest.raises(GraphBreakError, match="which the frame has changed"):
        recorded(read_within, [], fullgraph=True)(X)
    with SETTING:
        assert torch.equal(recorded(read_behind, [])(X), X * 10)
