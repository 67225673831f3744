"""How many loops one kernel does the work of is an option."""

from __future__ import annotations

import pytest
import torch
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_runtime.artifact import Launch


def six_results(x):
    """Six loops, each with a result that leaves, over one space."""
    return tuple(torch.sin(x + k) for k in range(6))


@pytest.mark.parametrize("most, kernels", [(64, 1), (6, 1), (4, 2), (2, 3), (1, 6)])
def test_a_kernel_takes_no_more_loops_than_allowed(most, kernels):
    """Six loops over the same points need so many kernels, and give the same results."""
    x = torch.randn(8, 9)
    artifact = compile_graph(traced(six_results, x), (x,), {"max_fusion_size": most})
    assert sum(isinstance(i, Launch) for i in artifact.program.instructions) == kernels
    for got, want in zip(flambeau_runtime.load(artifact)(x), six_results(x), strict=True):
        torch.testing.assert_close(got, want)


def test_a_reduction_and_what_uses_it_are_two_loops():
    """A softmax is one kernel, or one for every loop of it."""
    x = torch.randn(8, 64)
    gm = traced(lambda x: torch.softmax(x * 2, -1), x)
    counts = [
        sum(isinstance(i, Launch) for i in compile_graph(gm, (x,), {"max_fusion_size": most}).program.instructions)
        for most in (64, 1)
    ]
    assert counts[0] == 1 < counts[1]
