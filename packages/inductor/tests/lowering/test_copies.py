"""Copies and conversions: bits under another type, and what is left to the library."""

import pytest
import torch

BITS = {
    1: (torch.int8, torch.uint8),
    4: (torch.float32, torch.int32),
    8: (torch.float64, torch.int64),
}


@pytest.mark.parametrize("width", BITS)
def test_bits_under_another_type_of_their_width(check, width):
    """Negative numbers, zeros of both signs and what is no number keep every bit."""
    for source in BITS[width]:
        x = torch.tensor([0.0, 1.0, -1.0, 3.0, -100.0, 0.0]).to(source)
        if source.is_floating_point:
            x[0], x[5] = -0.0, float("nan")
        check(lambda x: tuple((x + x).view(target) for target in BITS[width] if target is not x.dtype), x)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.int16),
        (torch.int16, torch.float32),
        (torch.bool, torch.uint8),
        (torch.uint8, torch.bool),
        (torch.float16, torch.int16),
        (torch.int16, torch.bfloat16),
        (torch.bfloat16, torch.float16),
    ],
)
def test_bits_of_another_width_of_truth_values_and_of_halves_are_the_librarys(check, source, target):
    """Sizes change, bits are no truth value, or a register holds a float32 instead."""
    calls = ["clone.default", "view.dtype"]
    check(lambda x: x.view(target), torch.tensor([0, 1, 1, 0]).to(source), modes=("fake",), library=calls)
