"""Control-flow operators of torch."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager
from torch._higher_order_ops.associative_scan import associative_scan

from flambeau_capture import make_region


def test_cond_on_a_number_takes_a_branch(check):
    """The other branch is not traced."""
    check(lambda x: torch.cond(x.shape[0] > 2, lambda v: v + 1, lambda v: v.nope(), (x,)))


def test_cond_on_a_tensor_breaks():
    """With a reason of its own."""
    records = []
    region = make_region(
        lambda x: torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,)),
        eager,
        fullgraph=True,
        observer=records.append,
    )
    with pytest.raises(Exception, match="control-flow-operator"):
        region(torch.ones(2))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(size, reverse):
    """A cumulative sum, and the recurrence of a state-space model, in one graph."""

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    def run(x, decay, value):
        total = associative_scan(lambda a, b: a + b, x, dim=1, reverse=reverse, combine_mode="generic")
        return total, associative_scan(combine, (decay, value), dim=0, combine_mode="generic")[1]

    region = make_region(run, eager, fullgraph=True)
    x, decay, value = torch.randn(2, size, 3), torch.rand(size, 3), torch.randn(size, 3)
    total, states = region(x, decay, value)
    expected = x.flip(1).cumsum(1).flip(1) if reverse else x.cumsum(1)
    torch.testing.assert_close(total, expected)
    state = torch.zeros(3)
    for i in range(size):
        state = decay[i] * state + value[i]
        torch.testing.assert_close(states[i], state)


def test_function_transforms_break(broken):
    """They run in plain Python, with the right result."""
    assert broken(lambda x: torch.vmap(lambda row: row.sum())(x)) == {"unsupported-call"}
