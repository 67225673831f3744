"""Containers of values taken apart and put together as torch's pytrees do."""

from __future__ import annotations

import collections

import pytest
import torch
from both_ways import assert_equal, eager
from torch.utils._pytree import tree_flatten

from flambeau_capture import GraphBreakError, make_region

Pair = collections.namedtuple("Pair", "one other")

TREES = [
    lambda v: v + 1,
    lambda v: (v + 1,),
    lambda v: [v * 2, (v + 1, [])],
    lambda v: {"b": v * 2, "a": [v + 1]},
    lambda v: {2: v * 2, None: (v * 3,)},
    lambda v: Pair(v * 2, {"x": Pair(v * 3, v * 4)}),
    lambda v: collections.OrderedDict(x=v * 2, y=v + 1),
]


@pytest.mark.parametrize("tree", TREES)
def test_branches_return_trees(tree):
    """The result is of the classes and keys, in their order, that eager's is of."""

    def function(x):
        return torch.cond(x.sum() > 0, lambda v: tree(v), lambda v: tree(v.exp()), (x,))

    region = make_region(function, eager, fullgraph=True)
    for sign in (1.0, -1.0):
        x = torch.ones(3) * sign
        found, expected = region(x), tree(x if sign > 0 else x.exp())
        assert tree_flatten(found)[1] == tree_flatten(expected)[1]
        assert_equal(found, expected)


@pytest.mark.parametrize("other", [lambda v: {"b": v}, lambda v: [v], lambda v: (v, v + 1), lambda v: Pair(v, v + 1)])
def test_different_trees_break(other):
    """The containers, their keys or their lengths differ."""

    def function(x):
        return torch.cond(x.sum() > 0, lambda v: {"a": v + 1}, lambda v: other(v + 2), (x,))

    with pytest.raises(GraphBreakError):
        make_region(function, eager, fullgraph=True)(torch.ones(3))


@pytest.mark.parametrize("kind", [collections.deque, lambda items: collections.defaultdict(int, enumerate(items))])
def test_containers_that_are_not_taken_apart_break(kind):
    """torch knows more of them."""

    def function(x):
        return torch.cond(x.sum() > 0, lambda v: kind([v + 1]), lambda v: kind([v + 2]), (x,))

    with pytest.raises(GraphBreakError):
        make_region(function, eager, fullgraph=True)(torch.ones(3))
