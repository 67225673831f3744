"""Run a function plainly and captured, and compare: what the tests of every folder share."""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree


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
