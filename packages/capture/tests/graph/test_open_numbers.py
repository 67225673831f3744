"""How large a number read out of a tensor may be, so that what is computed of it stays in 64 bits."""

from __future__ import annotations

import torch
from both_ways import recorded


def _bounds(function, x):
    graphs = []
    recorded(function, graphs, fullgraph=True)(x)
    (graph,) = graphs
    return sorted({node.args[1] for node in graph.graph.nodes if getattr(node.target, "__name__", "") == "le"})


def test_the_largest_bound_that_does():
    """A sum allows larger numbers than a product; a size of a tensor is bounded by its memory."""
    x = torch.arange(4)
    assert _bounds(lambda x: x + (x.max().item() + 1), x) == [2**61]
    assert _bounds(lambda x: x + x.max().item() * 5, x) == [2**48]
    assert _bounds(lambda x: x + x.max().item() * x.min().item(), x) == [2**30]
    assert _bounds(lambda x: x[x > 0].shape[0] * x[x > 1].shape[0] + x, x) == []
