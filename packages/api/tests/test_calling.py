"""Graphs that take their inputs in a list do so whatever is put around their backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import flambeau
from flambeau.calling import on_first_call, one_by_one
from flambeau.debugging.verify import WrongResult


def _emptying(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend whose graphs take a list, and empty it."""

    def run(given: list[Any]) -> Any:
        values = [given.pop(0) for _ in range(len(given))]
        return gm(*values)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _off(gm: fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    def run(given: list[Any]) -> Any:
        return tuple(value + 1 for value in gm(*given))

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _program(x: Tensor, y: Tensor) -> Tensor:
    return x.sin() * y


X, Y = torch.linspace(0, 1, 4), torch.ones(4)


def _check(**arguments: Any) -> None:
    compiled = flambeau.compile(_program, **{"backend": _emptying, **arguments})
    for _ in range(2):
        assert torch.equal(compiled(X, Y), _program(X, Y))


def test_inputs_that_are_saved(tmp_path: Path) -> None:
    _check(options={"debug_folder": str(tmp_path), "compile_debug_save_real": True})
    (saved,) = tmp_path.glob("process-*/*/inputs.pt")
    assert [torch.equal(a, b) for a, b in zip(torch.load(saved), (X, Y), strict=True)] == [True, True]


def test_graphs_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_REPRO_AFTER", "dynamo")
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path))
    _check()
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("FLAMBEAU_REPRO_LEVEL", "4")
    _check()
    with pytest.raises(WrongResult, match="off by 1"):
        flambeau.compile(_program, backend=_off)(X, Y)


def test_graphs_that_are_watched() -> None:
    (speed, *_) = flambeau.explain(_program, backend=_emptying)(X, Y).speeds
    assert speed.what == "graph 0"


def test_a_script_that_cannot_be_written_spares_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any, **named: Any) -> str:
        raise ValueError("no words for it")

    monkeypatch.setattr("flambeau.debugging.graphs.script", fails)
    _check(options={"debug_folder": str(tmp_path), "compile_debug_save_real": True})
    assert not list(tmp_path.glob("process-*/*/inputs.pt"))


def test_the_first_call_alone_is_told_of() -> None:
    """With its inputs as they were before the list was emptied."""
    told: list[tuple[Any, ...]] = []

    @contextmanager
    def around(inputs: tuple[Any, ...]) -> Iterator[None]:
        told.append(inputs)
        yield

    def boxed(given: list[Any]) -> int:
        return sum(given.pop() for _ in range(len(given)))

    boxed._boxed_call = True  # type: ignore[attr-defined]
    marked: Any = on_first_call(boxed, around)
    assert [marked([1, 2]), marked([3, 4])] == [3, 7] and marked._boxed_call
    plain = on_first_call(lambda a, b: a - b, around)
    assert [plain(5, 2), plain(9, 1)] == [3, 8]
    assert told == [(1, 2), (5, 2)]
    assert one_by_one(boxed)(1, 2) == 3
