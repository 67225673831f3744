"""What the logs show, asked for in the program and in the environment."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import torch
from tests.documented.facts import documented
from tests.scripts import run


def shown(function, *inputs, **artifacts) -> str:
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        torch._logging.set_logs(**artifacts)
        try:
            for given in inputs:
                function(given)
        finally:
            torch._logging.set_logs()
    return stream.getvalue()


@documented("`set_logs(graph_code=True)` shows the captured operations as code")
def captured_code() -> None:
    text = shown(torch.compile(lambda x: torch.tanh(x) * 2, backend="eager"), torch.ones(2), graph_code=True)
    assert "tanh" in text and "def forward" in text


@documented("`set_logs(recompiles=True)` tells which guard failed: the size that was expected and the one that came")
def causes_of_recompiles() -> None:
    text = shown(torch.compile(lambda x: x + 1, backend="eager"), torch.ones(3), torch.ones(4), recompiles=True)
    assert "expected 3, actual 4" in text


@documented("`set_logs(graph_breaks=True)` names the line at which a graph ends, and why")
def causes_of_breaks() -> None:
    def step(x):
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    text = shown(torch.compile(step, backend="eager"), torch.ones(3), graph_breaks=True)
    assert "graph_break" in text
    assert (
        f"logging.py:{step.__code__.co_firstlineno + 2}" in text or f"line {step.__code__.co_firstlineno + 2}" in text
    )


@documented("`set_logs(guards=True)` shows what a compiled function relies on")
def guards() -> None:
    text = shown(torch.compile(lambda x: x + 1, backend="eager"), torch.ones(3, 5), guards=True)
    assert ("x" in text and "[3, 5]" in text) or "(3, 5)" in text


@documented(
    '`TORCH_LOGS="graph_code,recompiles"` in the environment does the same for a whole script',
    judges_itself="it is compiled in another process",
)
def logs_in_the_environment(folder: Path) -> None:
    script = """
import torch

@torch.compile(backend="eager")
def double(x):
    return torch.tanh(x) * 2

double(torch.ones(3))
double(torch.ones(4))
"""
    done = run(script, folder, TORCH_LOGS="graph_code,recompiles")
    assert done.status == 0 and "tanh" in done.output and "expected 3, actual 4" in done.output, done.output
