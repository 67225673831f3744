"""Sums of products in one memory: what is added up there, and what is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_inductor.lowering import accumulate
from flambeau_runtime.artifact import Call

A, B = torch.randn(8, 4), torch.randn(4, 6)


def three(a: Any, b: Any) -> Any:
    found = a @ b
    for factor in (2, 3):
        found = torch.addmm(found, a * factor, b)
    return (found,)


def first_is_returned(a: Any, b: Any) -> Any:
    found = a @ b
    return found, torch.addmm(found, a * 2, b)


def first_is_read_later(a: Any, b: Any) -> Any:
    found = a @ b
    return torch.addmm(found, a * 2, b), found.exp()


def added_twice(a: Any, b: Any) -> Any:
    found = a @ a.t()
    return (torch.addmm(found, found, a @ a.t()),)


def added_to_an_input(a: Any, b: Any) -> Any:
    return (torch.addmm(b, b[:, :4] if b.shape[1] > 4 else b, b),)


@pytest.mark.parametrize(
    ("function", "count"),
    [(three, 2), (first_is_returned, 0), (first_is_read_later, 0), (added_twice, 0), (added_to_an_input, 0)],
)
def test_what_nobody_reads_again_is_added_to(monkeypatch: pytest.MonkeyPatch, function: Any, count: int) -> None:
    monkeypatch.setattr(accumulate, "LEAST", 1)
    inputs = A, B
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    places = [
        i
        for i in artifact.program.instructions
        if isinstance(i, Call) and i.op == "aten::addmm" and i.overload == "out"
    ]
    assert len(places) == count
    before = [value.clone() for value in inputs]
    got = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))(*inputs)
    for ours, eager in zip(got, function(*inputs), strict=True):
        torch.testing.assert_close(ours, eager)
    torch.testing.assert_close([*inputs], before)


def test_small_sums_are_left_alone() -> None:
    """Their products may become kernels."""
    inputs = A, B
    artifact = compile_graph(traced(three, *inputs), inputs, {})
    assert not any(isinstance(i, Call) and i.overload == "out" for i in artifact.program.instructions)
