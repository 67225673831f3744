"""Which scales of sizes are exact."""

from __future__ import annotations

import pytest
import torch.nn.functional as F

from flambeau_capture.graph.resizing import rounds_sizes


@pytest.mark.parametrize(
    ("scale", "rounds"),
    [
        (2, False),
        (1.5, False),
        (4095 / 4096, False),
        (4097 / 4096, True),
        (4096.0, False),
        (4097.0, True),
        (1 / 3, True),
        (-1 / 8192, True),
        ((2.0, 0.1), True),
        ([0.5, 145 / 128], False),
        (None, False),
    ],
)
def test_scales_that_are_exact_in_small_integers_keep_sizes_symbolic(scale, rounds):
    """By position and by name; other functions round nothing."""
    assert rounds_sizes(F.interpolate, ("x", None, scale), {}) is rounds
    assert rounds_sizes(F.interpolate, ("x",), {"scale_factor": scale}) is rounds
    assert not rounds_sizes(F.pad, ("x", None, scale), {})
