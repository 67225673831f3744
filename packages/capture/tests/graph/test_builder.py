"""What nodes say of the user's lines, and which scales of sizes are exact."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F

from flambeau_capture import make_region
from flambeau_capture.graph.builder import _rounds_sizes


def doubled(x):
    return x * 2


def program(x):
    y = doubled(x)
    return y + 1


def test_nodes_name_the_lines_of_all_frames():
    """The outermost first; the line is that of the call."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    make_region(program, backend=backend)(torch.ones(2))
    calls = [node for node in graphs[0].graph.nodes if node.op == "call_function"]
    outer, inner = (inspect.getsourcelines(function)[1] for function in (program, doubled))
    found = [[(line, name) for _, line, name in node.meta["stack"]] for node in calls]
    assert found == [[(outer + 1, "program"), (inner + 1, "doubled")], [(outer + 2, "program")]]
    assert {file for node in calls for file, _, _ in node.meta["stack"]} == {__file__}


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
    assert _rounds_sizes(F.interpolate, ("x", None, scale), {}) is rounds
    assert _rounds_sizes(F.interpolate, ("x",), {"scale_factor": scale}) is rounds
    assert not _rounds_sizes(F.pad, ("x", None, scale), {})
