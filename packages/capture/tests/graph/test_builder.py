"""What nodes say of the user's lines."""

from __future__ import annotations

import inspect

import torch

from flambeau_capture import make_region


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
