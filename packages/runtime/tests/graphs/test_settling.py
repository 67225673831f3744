"""Results moved out of scratch memory: only plain ones of the sizes that were seen."""

from __future__ import annotations

import pytest
import torch

from flambeau_runtime.graphs.settling import ResultsDiffer, settle


def test_contents_and_shapes_are_kept() -> None:
    """What is no tensor, or an input's memory, is handed on as it is."""
    given, made = torch.ones(2), torch.arange(6.0).view(2, 3).t()
    moved, same, number = settle([made, given, 3], [given], [torch.empty(24, dtype=torch.uint8)])
    assert torch.equal(moved, made) and moved.stride() == made.stride() and moved.data_ptr() != made.data_ptr()
    assert same is given and number == 3


def test_other_results_than_seen_differ() -> None:
    """One of another size, and one that is no plain tensor."""
    with pytest.raises(ResultsDiffer):
        settle([torch.ones(3)], [], [torch.empty(8, dtype=torch.uint8)])
    with pytest.raises(ResultsDiffer):
        settle([torch.ones(2, dtype=torch.complex64).conj()], [], [torch.empty(16, dtype=torch.uint8)])
