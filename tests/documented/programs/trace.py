"""Records of what compiles did: files, counters, times."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.documented.facts import documented
from tests.scripts import run


@documented(
    "`TORCH_TRACE=folder` writes what was compiled into that folder, the program's code among it",
    judges_itself="it is compiled in another process",
)
def trace_folder(folder: Path) -> None:
    script = """
import torch

@torch.compile
def traced_function(x):
    return torch.tanh(x) * 2

traced_function(torch.ones(3))
"""
    done = run(script, folder, TORCH_TRACE=folder / "trace")
    assert done.status == 0, done.output
    text = "".join(path.read_text() for path in (folder / "trace").rglob("*") if path.is_file())
    assert "traced_function" in text and "tanh" in text


@documented("`torch._dynamo.utils.counters` counts graphs, frames and the reasons of breaks")
def counters() -> None:
    counters = torch._dynamo.utils.counters
    counters.clear()

    def step(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    torch.compile(step, backend="eager")(torch.ones(2))
    assert counters["stats"]["unique_graphs"] == 2
    assert counters["frames"]["ok"] == counters["frames"]["total"] == 2
    assert sum(counters["graph_break"].values()) == 1


@documented("`torch._dynamo.utils.compile_times()` tells how long the stages took, as text or as rows")
def times_of_stages() -> None:
    torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(2))
    assert torch._dynamo.utils.compile_times()
    names, values = torch._dynamo.utils.compile_times(repr="csv", aggregate=True)
    assert len(names) == len(values) > 0
