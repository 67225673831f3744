"""Graphs that fail are kept."""

from __future__ import annotations

from pathlib import Path

from tests.documented.facts import documented
from tests.scripts import run

BACKENDS = """
import torch

@torch._dynamo.register_backend
def refuses_relu(graph, inputs):
    if any("relu" in str(node.target) for node in graph.graph.nodes):
        raise ValueError("no relu here")
    return graph.forward

@torch._dynamo.register_backend
def adds_one(graph, inputs):
    return lambda *given: tuple(value + 1 for value in graph.forward(*given))
"""


def kept(folder: Path) -> list[Path]:
    """Scripts that were written beside the one that ran."""
    return [path for path in folder.rglob("*.py") if path != folder / "script.py"]


@documented(
    "`TORCHDYNAMO_REPRO_AFTER=dynamo`: a graph on which the backend fails is written as a script; the error is raised as before",
    judges_itself="it is compiled in another process",
)
def failing_backend(folder: Path) -> None:
    script = BACKENDS + "torch.compile(lambda x: torch.relu(x + 1), backend='refuses_relu')(torch.ones(2))\n"
    done = run(script, folder, TORCHDYNAMO_REPRO_AFTER="dynamo")
    assert done.status == 1 and "no relu here" in done.output, done.output
    assert any("relu" in path.read_text() for path in kept(folder))


@documented(
    "with `TORCHDYNAMO_REPRO_LEVEL=4` a graph with wrong results is found and kept too",
    judges_itself="it is compiled in another process",
)
def wrong_results(folder: Path) -> None:
    script = BACKENDS + "torch.compile(lambda x: torch.tanh(x) * 2, backend='adds_one')(torch.ones(2))\n"
    done = run(script, folder, TORCHDYNAMO_REPRO_AFTER="dynamo", TORCHDYNAMO_REPRO_LEVEL="4")
    assert done.status == 1, done.output
    assert any("tanh" in path.read_text() for path in kept(folder))
