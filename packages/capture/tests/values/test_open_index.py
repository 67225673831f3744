"""A position that is read out of a tensor picks what it picks in plain Python, and writes there."""

from __future__ import annotations

import pytest
import torch

from .test_read_out import _calls

Y = torch.arange(24.0).view(2, 3, 4)
POSITIONS = [torch.tensor(n) for n in (1, 0, -1, -2, 7)]


def _store(x, n):
    x[n.item(), ..., 1] = 5.0
    x[0, n.item()] = x[1, 0]
    return x + 1


READS = {
    "alone": lambda x, n: x[n.item()] + 1,
    "view": lambda x, n: x[n.item()],
    "beside": lambda x, n: x[1, n.item(), 1:] + 1,
    "behind": lambda x, n: x[..., n.item(), None] + 1,
    "twice": lambda x, n: x[n.item(), :, n.item()] + 1,
    "store": _store,
}


@pytest.mark.parametrize("name", READS)
def test_as_in_python(name):
    """From both ends; beyond them the error is eager's."""
    words = ("IndexError",)
    assert _calls(READS[name], *((Y, n) for n in POSITIONS[:3])) == 1, words


def test_beside_a_tensor_it_breaks(broken):
    """Where a number between tensors puts the dimensions is left to torch."""
    index = torch.tensor([0, 1])
    assert broken(lambda x, n: x[index, n.item()], Y, POSITIONS[0]) == {"data-dependent-value"}
    assert "operator-error" in broken(lambda x, n: x[0, 0, 0, n.item()], Y, POSITIONS[0])
