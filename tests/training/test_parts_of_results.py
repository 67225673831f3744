"""Losses of some of a model's results: what the others would give is left out, whatever it is."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import flambeau


def model(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    hidden = torch.relu(x @ w)
    logits = hidden @ w.t()
    return torch.nn.functional.mse_loss(logits, x), logits, hidden.log()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_part_of_the_results_has_gradients(backend: str, dynamic: bool) -> None:
    """The logarithm's own derivative is infinite where the hidden values are zeros."""
    compiled = flambeau.compile(model, backend=backend, dynamic=dynamic)
    for size, used in itertools.product((3, 5), ([0], [1], [0, 1], [2], [1, 2], [0, 1, 2])):
        found = []
        for run in (model, compiled):
            torch.manual_seed(size)
            x, w = (torch.randn(size, 4).requires_grad_(), torch.randn(4, 4).requires_grad_())
            results = run(x, w)
            tangents = [torch.ones_like(results[i]) for i in used]
            found.append(torch.autograd.grad([results[i] for i in used], [x, w], tangents))
        for theirs, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
            assert ours.isfinite().all() or 2 in used
