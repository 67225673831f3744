"""What a program says about CUDA graphs beside the options: that an input stays where it is, that a part of it is recorded or not.

Programs on the CPU are "recorded" by the recorder of the runtime's own tests, which runs them again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.compiler import mark_static_address, override_cudagraphs
from flambeau.testing import CompileCounter
from tests.cudagraph.recorded import record_on_the_cpu

from .rows import calls


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is decided about programs that are to be recorded."""
    return record_on_the_cpu(monkeypatch).decisions


def recorded(decisions: list[Any]) -> list[tuple[str, str]]:
    """Program -> how many inputs its recording copies and reads in place."""
    return [(d.program, d.reason.partition("(")[2].rstrip(")")) for d in decisions if d.kind == "recorded"]


def two_layers(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w) @ w


def called(function: Callable[..., Any], *inputs: Tensor, graphs: bool = True, times: int = 3) -> None:
    compiled = flambeau.compile(function, options={"triton.cudagraphs": graphs})
    for _ in range(times):
        result = compiled(*inputs)
        if result.requires_grad:
            result.sum().backward()


@calls("helpers", "mark_static_address")
def test_an_input_that_stays(decisions: list[Any]) -> None:
    """It is read in place, and what is written to it between calls is seen; elsewhere, the program is recorded again, or compiled again."""
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    compiled = flambeau.compile(two_layers, options={"triton.cudagraphs": True})
    for _ in range(3):
        compiled(x, w)
    assert recorded(decisions) == [("forward", "2 inputs copied, 0 read in place")]
    decisions.clear()
    mark_static_address(x)
    compiled = flambeau.compile(two_layers, options={"triton.cudagraphs": True})
    for _ in range(4):
        x.copy_(torch.randn(8, 8))
        assert torch.allclose(compiled(x, w), two_layers(x, w), atol=1e-5)
    assert recorded(decisions) == [("forward", "1 inputs copied, 1 read in place")]
    moved = x.clone()
    for _ in range(4):
        moved.copy_(torch.randn(8, 8))
        assert torch.allclose(compiled(moved, w), two_layers(moved, w), atol=1e-5)
    assert len(recorded(decisions)) == 2
    with pytest.raises(TypeError):
        mark_static_address(3)


@calls("helpers", "mark_static_address")
def test_an_input_whose_address_is_guarded() -> None:
    """Elsewhere it is compiled again; so it is with torch's own mark."""
    for mark in (lambda t: mark_static_address(t, guard=True), _torchs_mark):
        counter = CompileCounter()
        compiled = flambeau.compile(lambda x: x * 2, backend=counter)
        here, there = torch.ones(3), torch.ones(3)
        for tensor in (here, there):
            mark(tensor)
        for tensor, compiles in ((here, 1), (here, 1), (there, 2), (here, 2), (there, 2)):
            compiled(tensor)
            assert counter.frame_count == compiles


def _torchs_mark(tensor: Tensor) -> None:
    tensor._dynamo_static_input_type = "guarded"


@calls("helpers", "override_cudagraphs")
def test_parts_that_are_recorded_or_not(decisions: list[Any]) -> None:
    """As a decorator and as a block, forward and backward apart, whatever the options say."""
    x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)

    def block(x: Tensor, w: Tensor) -> Tensor:
        with override_cudagraphs(bwd=False):
            y = x @ w
        return torch.tanh(y) @ w

    for function, on, programs in (
        (two_layers, True, {"forward", "backward"}),
        (override_cudagraphs(fwd=False, bwd=False)(two_layers), True, set()),
        (block, True, {"forward"}),
        (override_cudagraphs(fwd=True)(two_layers), False, {"forward"}),
        (two_layers, False, set()),
    ):
        decisions.clear()
        called(function, x, w, graphs=on)
        assert {program for program, _ in recorded(decisions)} == programs
    with pytest.raises(flambeau.FlambeauError):
        override_cudagraphs("no")


@calls("helpers", "override_cudagraphs")
def test_a_block_with_a_break(decisions: list[Any]) -> None:
    """What comes before it and after it is recorded, what is in it is not, on both sides of the break."""

    def function(x: Tensor, w: Tensor) -> Tensor:
        y = two_layers(x, w)
        flambeau.compiler.graph_break()
        with override_cudagraphs(fwd=False):
            y = y.sin() @ w
            flambeau.compiler.graph_break()
            y = y.cos() @ w
        flambeau.compiler.graph_break()
        return two_layers(y, w)

    called(function, torch.randn(8, 8), torch.randn(8, 8))
    assert sum(decision.reason.startswith("first call") for decision in decisions) == 2


@calls("helpers", "override_cudagraphs")
@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
def test_one_function_called_outside_and_inside_of_a_block(
    order: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls outside replay the recording and calls inside do not, whichever came first; each is compiled once."""
    seen = record_on_the_cpu(monkeypatch)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    compiled = flambeau.compile(two_layers, options={"triton.cudagraphs": True})
    for inside in order:
        before = seen.count("replayed")
        for _ in range(3):
            with override_cudagraphs(fwd=False) if inside else nullcontext():
                assert torch.allclose(compiled(x, w), two_layers(x, w), atol=1e-5)
        assert (seen.count("replayed") > before) is not inside
    assert (seen.count("warmed"), seen.count("recorded")) == (1, 1)
