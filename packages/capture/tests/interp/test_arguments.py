"""Containers as arguments of an operation: torch takes lists and tuples, and refuses others, captured or not."""

from __future__ import annotations

import collections

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "values": lambda items: dict(enumerate(items)).values(),
    "keys": lambda items: dict.fromkeys(items).keys(),
}
PROGRAMS = {
    "dimensions": lambda x, make: x.sum(make([1, 0])),
    "order": lambda x, make: x.permute(make([1, 0])),
    "sizes": lambda x, make: torch.zeros(make([1, 2])) + x.sum(),
    "shape": lambda x, make: x.reshape(make([3, 2])),
    "tensors": lambda x, make: torch.stack(make([x, x + 1])),
    "indices": lambda x, make: x[make([1, 0])],
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_torch_takes_lists_and_tuples_alone(program, container):
    x, make = torch.arange(6.0).reshape(2, 3), CONTAINERS[container]

    def function(x):
        return PROGRAMS[program](x * 2, make)

    assert_equal(outcome(make_region(function, eager), x), outcome(function, x))
