"""Ranges and names in torch.profiler, as tools for torch.compile's traces look for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import flambeau
from flambeau_runtime import ranges

from .rows import calls


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.norm = nn.LayerNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(self.norm(x))
        return torch.relu(h) + x


def profiled(compiled: Any, *, shapes: bool = True) -> Any:
    """The events of a warm training call."""
    x = torch.randn(32, 64, requires_grad=True)
    compiled(x).sum().backward()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes) as found:
        compiled(x).sum().backward()
    return found


@calls("tools", "profiler.region", "profiler.cache_lookup", "profiler.compiled_function")
def test_regions_and_compiled_functions() -> None:
    """One range a call with torch's name for it, the look at the guards before, forward and backward inside."""
    found = profiled(flambeau.compile(Model(), name="block"))
    events = {event.name: event for event in found.events()}
    (region,) = [name for name in events if name.startswith("Torch-Compiled Region: ")]
    number, label = region.removeprefix("Torch-Compiled Region: ").split(" ")
    assert label == "block" and [part.isdecimal() for part in number.split("/")] == [True, True]
    assert events[region].kwinputs["function"] == "Model.forward"
    lookup = events["TorchDynamo Cache Lookup"]
    assert lookup.cpu_parent is None and lookup.time_range.end <= events[region].time_range.start
    assert events["CompiledFunction"].cpu_parent is events[region]
    assert "CompiledFunctionBackward" in events
    programs = [event for event in found.events() if event.name.startswith("## Call CompiledFxGraph ")]
    parents = [program.cpu_parent.name for program in programs]
    assert parents == ["CompiledFunction", "CompiledFunctionBackward"]


@calls("tools", "profiler.kernel_names")
def test_kernels_and_library_calls_with_their_facts(tmp_path: Path) -> None:
    """Named by their operations; in a chrome trace with the user's lines, modules, bytes and operations."""
    found = profiled(flambeau.compile(Model()))
    path = tmp_path / "trace.json"
    found.export_chrome_trace(str(path))
    events = {event["name"]: event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"}
    norm = events["cpp_fused_native_layer_norm_0"]["args"]
    first = Model.forward.__code__.co_firstlineno
    assert norm["user_lines"] == f"{__file__}:{first + 1} in Model.forward"
    assert norm["modules"] == "norm" and norm["ops"] == "native_layer_norm"
    # The input and what comes out, twice the vector of the layer, mean and deviation of each row.
    assert norm["bytes"] == (2 * 32 * 64 + 2 * 64 + 2 * 32) * 4
    products = [event["args"] for name, event in events.items() if name.startswith(("extern_kernels.", "cpp_fused_mm"))]
    assert products and all(args["flops"] == 2 * 32 * 64 * 64 and args["modules"] == "linear" for args in products)


def test_without_a_profiler_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A range costs a call that nobody profiles nothing: its name is not even made."""
    x = torch.randn(4, 4)
    asked: list[ranges.NamedStep] = []
    compiled = flambeau.compile(lambda x: x.sin() + 1)
    compiled(x)
    original = ranges._facts

    def told(step: ranges.NamedStep) -> Any:
        asked.append(step)
        return original(step)

    monkeypatch.setattr(ranges, "_facts", told)
    compiled(x)
    assert asked == []
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU]):
            compiled(x)
    assert len(asked) == 1, "names are made once"
