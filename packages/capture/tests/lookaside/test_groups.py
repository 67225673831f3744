"""Gradients grouped by device and type: the groups, their order and members as torch makes them."""

from __future__ import annotations

import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


def test_groups_of_two_types(check):
    """Each group keeps the order of its tensors, and says which they were."""

    def run(x):
        tensors = [x + 1, x.double(), x + 2, x.double() * 2]
        lists = [tensors, [x * 3, None, x, None]]
        found = torch.utils._foreach_utils._group_tensors_by_device_and_dtype(lists, with_indices=True)
        return list(found), list(found.values())

    check(run)


def test_lists_of_two_lengths_raise_as_in_eager():
    """What torch refuses is left to it."""

    def run(x):
        return torch.utils._foreach_utils._group_tensors_by_device_and_dtype([[x], [x, x]])

    region = make_region(run, eager)
    assert_equal(outcome(region, torch.ones(2))[1][0], outcome(run, torch.ones(2))[1][0])


def test_norms_are_clipped_in_one_graph():
    """`clip_grad_norm_` reads and writes the gradients that the graph made."""
    weights = [
        torch.full((3,), 2.0, requires_grad=True),
        torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True),
    ]

    def run(x):
        (weights[0] * x).sum().backward()
        (weights[1] * 2).sum().backward()
        return torch.nn.utils.clip_grad_norm_(weights, 0.5), [weight.grad for weight in weights]

    found = make_region(run, eager, fullgraph=True)(torch.ones(3))
    for weight in weights:
        weight.grad = None
    assert_equal(found, run(torch.ones(3)))
