"""A graph becomes the same artifact in every process: Python's sets of names have another order in each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tracing import lowered, traced

from flambeau_inductor.ir.loops import Extern
from flambeau_inductor.pipeline import compile_loops


@pytest.fixture(autouse=True)
def products_are_calls() -> None:
    """By their sizes in this file: nothing that a fixture changes is changed in other processes."""


def _cells(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Several results of one shape that are made together and die together, between products."""
    for _ in range(4):
        gates = x @ w
        parts = [gates.sigmoid(), gates.tanh(), gates.exp(), gates.relu()]
        mixed = [part @ w for part in parts]
        x = mixed[0] * mixed[1] + mixed[2] * mixed[3]
    return (x,)


def digest() -> str:
    """Of the program for `_cells`, with products that are the library's."""
    graph = lowered(traced(_cells, torch.randn(64, 64), torch.randn(64, 64)))
    assert sum(isinstance(operation, Extern) for operation in graph.operations) == 20
    return compile_loops(graph).artifact.digest


def test_artifacts_do_not_depend_on_hashes() -> None:
    """Other hashes of strings, the same digest."""
    folder = Path(__file__).parent
    found = {digest()}
    for seed in ("1", "2"):
        path = os.pathsep.join([str(folder), str(folder.parent), *sys.path])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        code = f"import {Path(__file__).stem} as case; print(case.digest())"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        found.add(done.stdout.strip())
    assert len(found) == 1
