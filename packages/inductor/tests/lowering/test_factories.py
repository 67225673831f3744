"""Tensors made of sizes and numbers are loops, and no library calls."""

import pytest
import torch


@pytest.mark.parametrize("bounds", [(7,), (2, 7), (2, 12, 3), (9, -4, -2), (0.5, 2.0, 0.25)])
def test_ranges(check, bounds):
    """Every overload, in both directions, of integers and of floats."""
    check(lambda x: x[0] + torch.arange(*bounds), torch.randn(3))
