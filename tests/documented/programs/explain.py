"""What `explain` counts and names."""

from __future__ import annotations

import torch
from tests.documented.facts import documented


def toy(a, b):
    x = a / (torch.abs(a) + 1)
    print("between the graphs")
    if b.sum() < 0:
        b = b * -1
    return x * b


@documented("`explain(function)(*args)` counts graphs, breaks and operations")
def counts() -> None:
    found = torch._dynamo.explain(toy)(torch.randn(10), torch.ones(10))
    assert found.graph_count == 3 and found.graph_break_count == 2
    assert found.op_count == sum(map(len, found.ops_per_graph)) and found.op_count >= 4


@documented("each break has a reason and the user's stack")
def reasons() -> None:
    found = torch._dynamo.explain(toy)(torch.randn(10), torch.ones(10))
    lines = [reason.user_stack[-1].lineno for reason in found.break_reasons]
    first = toy.__code__.co_firstlineno
    assert lines == [first + 2, first + 3]
    assert all(reason.reason for reason in found.break_reasons)


@documented("a function without breaks is one graph; guards are listed, and all of it is shown as text")
def without_breaks() -> None:
    found = torch._dynamo.explain(lambda x: torch.tanh(x) * 2)(torch.randn(4))
    assert (found.graph_count, found.graph_break_count) == (1, 0)
    assert found.out_guards and not found.break_reasons
    text = str(found).lower()
    assert "graph" in text and "break" in text
