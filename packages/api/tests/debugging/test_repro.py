"""Graphs that fail are kept, and only those."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import flambeau
from flambeau.debugging.graphs import unpack
from flambeau.debugging.repro import GRAPH, SCRIPT, Keeping
from flambeau.debugging.verify import WrongResult
from flambeau.errors import InvalidOption


def _raises(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    raise ZeroDivisionError("no such graph")


def _off(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    return lambda *given: tuple(value + 1 for value in gm.forward(*given))


def _program(x: Tensor) -> Tensor:
    return x.sin() * 2


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "dynamo")
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path))
    return tmp_path


def test_a_graph_that_cannot_be_compiled(folder: Path) -> None:
    with pytest.raises(Exception, match="no such graph"):
        flambeau.compile(_program, backend=_raises)(torch.randn(4))
    (kept,) = folder.iterdir()
    gm, inputs = unpack((kept / GRAPH).read_bytes())
    assert len(inputs) == 1 and torch.is_tensor(gm(*inputs)[0])
    done = subprocess.run([sys.executable, str(kept / SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 1 or "backend" in (kept / SCRIPT).read_text()


def test_a_graph_that_is_right_leaves_nothing(folder: Path) -> None:
    flambeau.compile(_program, backend="eager")(torch.randn(4))
    assert not list(folder.iterdir())


@pytest.mark.parametrize(("level", "names"), [("1", {SCRIPT, "inputs.pt"}), ("2", {SCRIPT, "inputs.pt", GRAPH})])
def test_levels_of_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch, level: str, names: set[str]) -> None:
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", level)
    with pytest.raises(Exception, match="no such graph"):
        flambeau.compile(_program, backend=_raises)(torch.randn(4))
    (kept,) = folder.iterdir()
    assert {file.name for file in kept.iterdir()} == names


def test_level_three_keeps_every_graph(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "3")
    flambeau.compile(_program, backend="eager")(torch.randn(4))
    assert len(list(folder.iterdir())) == 1


def test_level_four_compares(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flambeau.compile(_program, backend=_off)(torch.randn(4))
    assert not list(folder.iterdir())
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    x = torch.randn(4)
    with pytest.raises(WrongResult, match="off by 1"):
        flambeau.compile(_program, backend=_off)(x)
    (kept,) = folder.iterdir()
    _, inputs = unpack((kept / GRAPH).read_bytes())
    assert torch.equal(inputs[0], x)


def test_tolerance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    monkeypatch.setenv("FLAMBEAU_REPRO_TOLERANCE", "2")
    flambeau.compile(_program, backend=_off)(torch.randn(4))
    assert not list(folder.iterdir())


def test_integers_and_gradients_are_left_out_where_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")

    def counts(x: Tensor) -> Tensor:
        return x.argmax(0)

    with pytest.raises(WrongResult):
        flambeau.compile(counts, backend=_off)(torch.randn(4))
    monkeypatch.setenv("FLAMBEAU_REPRO_IGNORE_NON_FP", "1")
    flambeau.compile(counts, backend=_off)(torch.randn(4))

    def doubled(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        return lambda *given: tuple(2 * value - value.detach() for value in gm.forward(*given))

    with pytest.raises(WrongResult):
        flambeau.compile(_program, backend=doubled)(torch.randn(4, requires_grad=True))
    monkeypatch.setenv("FLAMBEAU_REPRO_FORWARD_ONLY", "1")
    flambeau.compile(_program, backend=doubled)(torch.randn(4, requires_grad=True))


def test_wrong_variables_are_told() -> None:
    for name, value in (("AFTER", "aot"), ("LEVEL", "5"), ("TOLERANCE", "small")):
        with pytest.raises(InvalidOption, match=name):
            Keeping.from_environment({"FLAMBEAU_REPRO_AFTER": "dynamo", f"FLAMBEAU_REPRO_{name}": value})


def test_what_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program goes on without."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(blocked))
    x = torch.randn(4)
    torch.testing.assert_close(flambeau.compile(_program, backend="eager")(x), _program(x))
    assert "graph_not_kept" in capsys.readouterr().err
