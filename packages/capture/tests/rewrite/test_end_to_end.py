"""Whole frames through capture: graph breaks in every kind of construct leave results, prints and exceptions as in plain Python."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

from .observing import outcome, plain
from .programs import PROGRAMS
from .tensor_programs import TENSOR_PROGRAMS


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_plain_programs(function, args):
    """No tensors: what is compared is the rewriting alone."""
    region = make_region(function, eager)
    expected = outcome(function, args)
    for _ in range(3):
        assert outcome(region, args) == expected


@pytest.mark.parametrize(("function", "args"), TENSOR_PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_tensor_programs(function, args):
    """Graphs on both sides of a break, with the same random numbers."""
    region = make_region(function, eager)
    torch.manual_seed(0)
    expected = outcome(function, args, plain)
    for _ in range(3):
        torch.manual_seed(0)
        assert outcome(region, args, plain) == expected


def test_an_attribute_that_is_deleted_and_set_again_comes_last():
    """As in Python, where the dictionary of an object remembers in which order names came."""

    class Holder:
        def __init__(self):
            self.first, self.second = 1, 2

    def renew(x, holder):
        del holder.first
        holder.first = 5
        return x + holder.first

    for function in (renew, make_region(renew, eager)):
        holder = Holder()
        assert function(torch.zeros(2), holder).tolist() == [5, 5]
        assert list(vars(holder).items()) == [("second", 2), ("first", 5)]
