"""`explain` as torch._dynamo's documentation uses it."""

from __future__ import annotations

import pytest
import torch

import flambeau

from .rows import calls


@calls("helpers", "explain")
@pytest.mark.compiles(graphs=2)
def test_explain_gives_what_torch_dynamos_does() -> None:
    """The fields of its ExplainOutput, and a text that has them."""

    def toy(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x = a / (torch.abs(a) + 1)
        print("woo")
        return x * b

    found = flambeau.explain(toy)(torch.randn(10), torch.randn(10))
    assert (found.graph_count, found.graph_break_count, found.op_count) == (2, 1, 4)
    (reason,) = found.break_reasons
    assert reason.line == toy.__code__.co_firstlineno + 2 and "print" in reason.reason
    assert reason.user_stack[-1][:2] == (__file__, reason.line)
    assert [len(ops) for ops in found.ops_per_graph] == [3, 1]
    assert len(found.graphs) == 2 and found.out_guards and "capture" in found.compile_times
    text = str(found)
    assert "Graph Count" not in text and "graphs: 2, graph breaks: 1, operations: 4" in text
