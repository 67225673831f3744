"""`profile`: which kernels, how often, how much; never how long."""

from __future__ import annotations

import json
from io import StringIO

import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import flambeau
from flambeau.errors import InvalidOption
from flambeau.insight.steps import Taken
from flambeau_runtime.limits import limits_of

X = torch.ones(64, 64)


def test_kernels_of_a_training_step() -> None:
    """A function around it: forward and backward of every graph, as often as each runs."""
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())

    def step(x: Tensor) -> Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    found = flambeau.profile(step, runs=3)(X)
    assert found.runs == 3 and found.device == "cpu" and found.result.numel() == 1
    assert found.kernels and all(kernel.calls == 1 and kernel.measured_seconds for kernel in found.kernels)
    gelu = [kernel for kernel in found.kernels if "gelu" in kernel.ops]
    assert gelu and gelu[0].modules == ("1",)
    times = [kernel.measured_seconds or 0 for kernel in found.kernels]
    assert times == sorted(times, reverse=True)
    assert found.kernel_seconds == pytest.approx(sum(times))


def test_rates_follow_from_bytes_and_times() -> None:
    found = flambeau.profile(lambda x: x.sin() + 1)(X)
    (kernel,) = found.kernels
    assert kernel.bytes == 2 * X.nbytes and kernel.flops == 2 * X.numel()
    assert kernel.measured_seconds is not None and kernel.bytes_per_second is not None
    assert kernel.bytes_per_second == pytest.approx(kernel.bytes / kernel.measured_seconds)
    limits = limits_of(torch.device("cpu"))
    assert kernel.estimated_seconds == limits.seconds(kernel.bytes, kernel.flops)


def test_texts_and_json() -> None:
    found = flambeau.profile(lambda x: x.sin() + 1, runs=1)(X)
    text = str(found)
    assert "cpp_fused_sin_add_0" in text and "test_profile.py:" in text
    data = json.loads(found.to_json())
    assert data["schema"] == 1 and data["kernels"][0]["name"] == "cpp_fused_sin_add_0"
    console = Console(width=100, file=StringIO())
    console.print(found)
    assert "cpp_fused_sin_add_0" in console.file.getvalue()


def test_a_repeated_layer_is_counted_as_often_as_it_runs() -> None:
    """Compiled once, called twelve times."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(256, 256)

        def forward(self, x: Tensor) -> Tensor:
            return torch.tanh(self.linear(torch.sin(x))) + x

    with torch.no_grad():
        found = flambeau.profile(nn.Sequential(*(Layer() for _ in range(12))), runs=2)(torch.ones(64, 256))
    sines = [kernel for kernel in found.kernels if "sin" in kernel.ops]
    assert sum(kernel.calls for kernel in sines) == 12


def test_what_cannot_be_profiled() -> None:
    """Nothing compiled; a profiler inside another; a count that is none."""
    found = flambeau.profile(lambda x: x, runs=1)(X)
    assert not found.kernels and "no compiled code ran" in str(found)
    with torch.profiler.profile(), pytest.raises(InvalidOption, match="a profiler is active"):
        flambeau.profile(lambda x: x + 1)(X)
    with pytest.raises(InvalidOption, match="at least 1"):
        flambeau.profile(lambda x: x + 1, runs=0)


def test_a_time_is_the_median() -> None:
    """One call that waited for another process counts like the others."""
    assert Taken([1.0, 1.0, 100.0]).seconds == 3.0
