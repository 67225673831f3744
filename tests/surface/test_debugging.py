"""Variables that keep graphs which fail, with backends that are wrong by decree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import flambeau
from flambeau.debugging.verify import WrongResult
from tests import scripts

from .rows import calls


def _off(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """One too much."""
    return lambda *given: tuple(value + 1 for value in gm.forward(*given))


def _steep(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The right results, with twice the gradients."""
    return lambda *given: tuple(2 * value - value.detach() for value in gm.forward(*given))


def _program(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where graphs are kept."""
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "dynamo")
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path))
    return tmp_path


@calls("environment", "REPRO_AFTER", "REPRO_LEVEL")
@calls("tools", "fx_graph_runnable")
def test_kept_graphs_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 3 keeps every graph with its inputs and a script that runs it; nothing is kept of a right one below that."""
    flambeau.compile(_program, backend="eager")(torch.randn(4))
    assert not list(folder.iterdir())
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "3")
    flambeau.compile(_program, backend="eager")(torch.randn(4))
    (kept,) = folder.iterdir()
    (script,) = kept.glob("*.py")
    done = scripts.run_file(script)
    assert done.status == 0, done.stderr


@calls("environment", "REPRO_TOLERANCE", "REPRO_IGNORE_NON_FP", "REPRO_FORWARD_ONLY")
def test_what_counts_as_wrong(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Level 4 compares; a tolerance, integers and gradients can be left out of it."""
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    with pytest.raises(WrongResult):
        flambeau.compile(_program, backend=_off)(torch.randn(4))
    assert len(list(folder.iterdir())) == 1
    with pytest.raises(WrongResult):
        flambeau.compile(lambda x: x.argmax(0), backend=_off)(torch.randn(4))
    with pytest.raises(WrongResult):
        flambeau.compile(_program, backend=_steep)(torch.randn(4, requires_grad=True))
    monkeypatch.setenv("FLAMBEAU_REPRO_IGNORE_NON_FP", "1")
    flambeau.compile(lambda x: x.argmax(0), backend=_off)(torch.randn(4))
    monkeypatch.setenv("FLAMBEAU_REPRO_FORWARD_ONLY", "1")
    flambeau.compile(_program, backend=_steep)(torch.randn(4, requires_grad=True))
    monkeypatch.setenv("FLAMBEAU_REPRO_TOLERANCE", "2")
    flambeau.compile(_program, backend=_off)(torch.randn(4))
