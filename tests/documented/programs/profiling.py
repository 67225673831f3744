"""What torch.profiler shows of compiled code."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from tests.documented.facts import documented
from torch.profiler import ProfilerActivity, profile


def step(x):
    return torch.tanh(x).sum()


@documented(
    "compiled code is in a range `Torch-Compiled Region`, with `CompiledFunction` and `CompiledFunctionBackward` for its halves"
)
def regions() -> None:
    compiled = torch.compile(step)
    x = torch.randn(8, requires_grad=True)
    compiled(x).backward()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        compiled(x).backward()
    names = {event.name for event in found.events()}
    assert any(name.startswith("Torch-Compiled Region") for name in names)
    assert {"CompiledFunction", "CompiledFunctionBackward"} <= names


@documented("`export_chrome_trace` writes these ranges into a file")
def chrome_trace(folder: Path) -> None:
    compiled = torch.compile(step)
    x = torch.randn(8)
    compiled(x)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        compiled(x)
    found.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("Torch-Compiled Region") for event in events)


@documented("a graph break shows: there are two regions where there would be one")
def a_break_shows() -> None:
    def broken(x):
        x = torch.tanh(x)
        torch._dynamo.graph_break()
        return x * 2

    regions = {}
    for function in (step, broken):
        compiled = torch.compile(function, backend="eager")
        compiled(torch.randn(8))
        with profile(activities=[ProfilerActivity.CPU]) as found:
            compiled(torch.randn(8))
        regions[function] = sum(event.name.startswith("Torch-Compiled Region") for event in found.events())
    assert regions == {step: 1, broken: 2}
