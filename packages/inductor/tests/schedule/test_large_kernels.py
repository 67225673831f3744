"""Kernels that need nothing from each other and move much are one only where they have much in common."""

import torch
from tracing import traced

from flambeau_inductor import compile_graph
from flambeau_runtime.artifact import Launch


def kernels(function, *inputs):
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    return sum(isinstance(i, Launch) for i in artifact.program.instructions)


def test_a_row_in_common_is_not_enough():
    """Two large tensors with one scale for each row; small ones, and those with a large one in common, are fused."""

    def scaled(a, b, scale):
        return a * scale, b * scale

    def shared(a, b, scale):
        return a * b, b.exp() * scale

    for rows, count in ((2048, 2), (16, 1)):
        inputs = torch.randn(rows, 1024), torch.randn(rows, 1024), torch.randn(rows, 1)
        assert kernels(scaled, *inputs) == count
        assert kernels(shared, *inputs) == 1
