"""Tensors made of sizes and numbers are loops, and no library calls."""

import pytest
import torch


@pytest.mark.parametrize("bounds", [(7,), (2, 7), (2, 12, 3), (9, -4, -2), (0.5, 2.0, 0.25)])
def test_ranges(check, bounds):
    """Every overload, in both directions, of integers and of floats."""
    check(lambda x: x[0] + torch.arange(*bounds), torch.randn(3))


def test_a_range_of_integers_with_bounds_that_are_none(check):
    """Eager cuts the bounds off before it counts, and so does the library's call."""
    x = torch.zeros(3, dtype=torch.int64)
    check(lambda x: x[0] + torch.arange(0.5, 5.0, 1.5, dtype=torch.int64), x, library=["arange.start_step"])
