"""Options of CUDA graphs, recorded of CPU programs."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.errors import NotRecorded
from tests.cudagraph.recorded import record_on_the_cpu

from .rows import calls


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is decided about programs that are to be recorded."""
    return record_on_the_cpu(monkeypatch).decisions


def two_layers(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w) @ w


W = torch.randn(100, 100)


def run_graphed(sizes: list[int], **options: Any) -> Any:
    compiled = flambeau.compile(two_layers, options={"triton.cudagraphs": True, **options})
    for size in sizes:
        x = torch.randn(size, 100)
        flambeau.compiler.mark_dynamic(x, 0)
        compiled(x, W)


def kinds(decisions: list[Any]) -> list[str]:
    return [decision.kind for decision in decisions]


@calls("options", "triton.cudagraphs")
def test_programs_are_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64])
    assert kinds(decisions) == ["recorded"]


@calls("options", "triton.skip_cudagraph_warmup")
def test_the_first_call_is_recorded(decisions: list[Any]) -> None:
    run_graphed([64])
    assert kinds(decisions) == []
    run_graphed([64], **{"triton.skip_cudagraph_warmup": True})
    assert kinds(decisions) == ["recorded"]


@calls("options", "triton.cudagraph_capture_sizes")
def test_sizes_that_are_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64, 80, 80], **{"triton.cudagraph_capture_sizes": (64,)})
    assert kinds(decisions) == ["recorded", "plain"]


@calls("options", "triton.cudagraph_dynamic_shape_warn_limit")
def test_a_warning_of_many_sizes(decisions: list[Any]) -> None:
    with pytest.warns(RuntimeWarning, match="more than 2 different sizes") as told:
        run_graphed([n for n in range(60, 65) for _ in range(2)], **{"triton.cudagraph_dynamic_shape_warn_limit": 2})
    assert len(told) == 1 and kinds(decisions) == ["recorded"] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_graphed([n for n in range(60, 65) for _ in range(2)])


@calls(
    "options",
    "triton.cudagraph_skip_dynamic_graphs",
    "triton.cudagraph_support_input_mutation",
    "triton.cudagraph_or_error",
)
def test_programs_that_are_not_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64], **{"triton.cudagraph_skip_dynamic_graphs": True})

    def writes(x: Tensor, w: Tensor) -> Tensor:
        x.add_(torch.tanh(x @ w))
        return x @ w

    given = torch.randn(64, 100), W
    for options in ({}, {"triton.cudagraph_support_input_mutation": False}):
        compiled = flambeau.compile(writes, options={"triton.cudagraphs": True, **options})
        for _ in range(2):
            compiled(*given)
    assert kinds(decisions) == ["recorded"]
    strict = {"triton.cudagraphs": True, "triton.cudagraph_or_error": True}
    refused = flambeau.compile(
        writes, fullgraph=True, options={**strict, "triton.cudagraph_support_input_mutation": False}
    )
    with pytest.raises(NotRecorded, match="writes to an input"):
        refused(*given)


@calls("options", "graph_partition")
def test_all_or_nothing(decisions: list[Any]) -> None:
    def stops(x: Tensor, w: Tensor) -> Tensor:
        x = two_layers(torch.tanh(two_layers(x, w)), w)
        return two_layers(torch.tanh(two_layers(x * x.sum().item(), w)), w)

    for partition in (True, False):
        compiled = flambeau.compile(stops, options={"triton.cudagraphs": True, "graph_partition": partition})
        for _ in range(3):
            compiled(torch.randn(64, 100), W)
        told = kinds(decisions)
        assert ("recorded" in told) is partition, decisions
        decisions.clear()


class Garbage:
    """Part of a cycle, which the collector alone finds."""

    def __init__(self) -> None:
        self.own = self


@calls("settings", "force_cudagraph_gc")
@calls("environment", "CUDAGRAPH_GC")
def test_garbage_is_collected_before_a_recording(decisions: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def is_collected() -> bool:
        garbage = weakref.ref(Garbage())
        gc.disable()
        try:
            run_graphed([64, 64])
            return garbage() is None
        finally:
            gc.enable()

    assert not is_collected()
    with flambeau.compiler.config.patch(force_cudagraph_gc=True):
        assert is_collected()
    assert not is_collected()
    monkeypatch.setenv("FLAMBEAU_CUDAGRAPH_GC", "1")
    assert is_collected()
    assert kinds(decisions) == ["recorded"] * 4
