"""NumPy's scalars as arguments of torch's functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from both_ways import assert_equal, outcome, recorded

pytestmark = pytest.mark.filterwarnings("ignore")

NUMBERS = (
    np.float64(0.5),
    np.float32(0.5),
    np.int64(1),
    np.int32(1),
    np.uint8(1),
    np.bool_(True),
    np.float16(0.5),
    np.complex128(1),
    np.complex64(1),
)
PROGRAMS = (
    "x * s", "s * x", "x + s", "s - x", "x ** s", "x / s", "x == s", "x > s", "x[s]", "x[s:]", "x[0, s]", "x.sum(s)", "torch.full((2,), s)", "torch.tensor(s)", "torch.tensor([s, 2])",
    "torch.as_tensor(s)", "x.clamp(min=s)", "torch.add(x, 1, alpha=s)", "x.new_tensor(s)", "torch.zeros(s, 2)", "x.reshape(s, -1)", "torch.arange(s)", "x.mul_(s)", "x.fill_(s)",
    "x.__setitem__(0, s)", "torch.where(x > 0, x, s)", "torch.pow(s, x)", "x.expand(s, 2, 3)",
)  # fmt: skip


@pytest.mark.parametrize("text", PROGRAMS)
def test_scalars_are_what_torch_takes_them_for(text):
    """The same results and errors, whichever class the scalar has; most are one graph."""
    program = eval(f"lambda x, s: ({text}, x)", {"torch": torch})
    captured = 0
    for number in NUMBERS:
        graphs = []
        region = recorded(program, graphs)
        assert_equal(outcome(region, torch.ones(2, 3), number), outcome(program, torch.ones(2, 3), number))
        captured += len(graphs) == 1
    assert captured
