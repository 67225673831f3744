"""Run a function plainly and captured, and compare: fixtures shared by the tests of values and of replacements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from flambeau_capture import make_region


def matrix():
    """The usual argument."""
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def eager(graph, inputs):
    """A backend that runs the graph as it is."""
    return graph.forward


def outcome(function, *args):
    """What calling does: the result, or the exception's type and text."""
    try:
        return "returned", function(*args)
    except Exception as error:
        return "raised", (type(error), str(error))


def assert_equal(found, expected):
    """The same structure, types and values, bit for bit."""
    found_leaves, found_spec = pytree.tree_flatten(found)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert found_spec == expected_spec
    for a, b in zip(found_leaves, expected_leaves, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            assert a.requires_grad == b.requires_grad
        else:
            assert type(a) is type(b)
            assert a == b


def _check(function, *args, fullgraph=True, **options) -> list[Any]:
    """Three calls, each compared with plain Python; the records of what was compiled."""
    records: list[Any] = []
    region = make_region(function, eager, observer=records.append, fullgraph=fullgraph, **options)
    arguments = args or (matrix(),)
    for _ in range(3):
        clones = [[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments] for _ in range(2)]
        assert_equal(outcome(region, *clones[0]), outcome(function, *clones[1]))
    return records


def _broken(function, *args) -> set[str]:
    """The codes of what breaks the graph; results are compared all the same."""
    return {b.code for record in _check(function, *args, fullgraph=False) for b in record.breaks}


@pytest.fixture
def check():
    """`check(function, *args)`: one graph that does what plain Python does."""
    return _check


@pytest.fixture
def broken():
    """`broken(function, *args)`: the codes of its breaks."""
    return _broken
