"""Errors as programs meet them: one root, one form, the user's frames; what the program raises itself stays as it is."""

from __future__ import annotations

import importlib
import inspect
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau import FlambeauError
from flambeau.errors import BackendError, GraphBreakError, UserPosition

PACKAGES = ("flambeau_capture", "flambeau_autograd", "flambeau_inductor", "flambeau_runtime", "flambeau")


def classes() -> list[type[FlambeauError]]:
    """Every error class of the packages."""
    found = []
    for package in PACKAGES:
        module = importlib.import_module(f"{package}.errors")
        found += [kind for _, kind in inspect.getmembers(module, inspect.isclass) if kind.__module__ == module.__name__]
    return found


def _gate(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x + 1
    return x


def _inner(x: torch.Tensor) -> torch.Tensor:
    return _gate(x) * 2


def _caught(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_every_class_has_the_root_and_a_code_of_its_package(kind: type[FlambeauError]) -> None:
    """Also every exception that is defined beside them."""
    assert issubclass(kind, FlambeauError) and kind.__doc__
    number = {
        "flambeau": 0,
        "flambeau_capture": 1,
        "flambeau_autograd": 2,
        "flambeau_inductor": 3,
        "flambeau_runtime": 4,
    }
    assert kind.code.startswith(f"FB{number[kind.__module__.partition('.')[0]]}") and len(kind.code) == 5


def test_a_text_has_code_frames_context_and_hint(tmp_path: Path) -> None:
    """In this order; the caret is under the innermost frame."""
    path = tmp_path / "model.py"
    path.write_text("def f(x):\n    return g(x)\ndef g(x):\n    return x.nope()\n")
    error = FlambeauError(
        "no", "do otherwise", positions=[UserPosition(str(path), 2, "f"), UserPosition(str(path), 4, "g", 11, 19)]
    )
    error.add_context("lowering aten.mm")
    assert str(error).splitlines() == [
        "[FB000] no",
        f"  {path}:2 in f",
        "      return g(x)",
        f"  {path}:4 in g",
        "      return x.nope()",
        "             ^^^^^^^^",
        "  while lowering aten.mm",
        "  hint: do otherwise",
    ]
    assert error.position == error.positions[-1]


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_errors_pass_between_processes(kind: type[FlambeauError]) -> None:
    """Workers and test runners pickle what they catch."""
    arguments = {"UnknownName": ("mode", "x", ["y"]), "NotHereYet": ("mode", "x"), "WrappedGradient": (0, None)}
    error = kind(*arguments.get(kind.__name__, ("words",)))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind and str(again) == str(error) and again.hint == error.hint


@pytest.mark.compiles(graphs=0)
def test_every_frame_of_the_user_is_shown() -> None:
    """From the compiled function to the construct, through calls that were inlined."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return _inner(x * 2)

    with pytest.raises(GraphBreakError) as caught:
        flambeau.compile(f, fullgraph=True)(torch.ones(3))
    error = caught.value
    assert isinstance(error, FlambeauError) and isinstance(error, RuntimeError)
    assert [position.function.rpartition(".")[2] for position in error.positions] == ["f", "_inner", "_gate"]
    lines = str(error).splitlines()
    below = lines[lines.index("      if x.sum() > 0:") + 1]
    assert below == "         ^^^^^^^^^^^"


def _files(error: BaseException | None) -> set[str]:
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    # torch puts frames of its own around functions once its compiler was loaded, by another test.
    return {frame.filename for frame in frames if not frame.filename.startswith(os.path.dirname(torch.__file__))}


@pytest.mark.compiles(graphs=0)
def test_tracebacks_start_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a frame of ours, in the error and in its cause, unless they are asked for."""

    def bad(graph: Any, inputs: Any) -> Any:
        raise KeyError("mine")

    def raised() -> BaseException:
        return _caught(lambda: flambeau.compile(lambda x: x + 1, backend=bad)(torch.ones(2)))

    monkeypatch.setenv("FLAMBEAU_VERBOSE", "0")
    error = raised()
    assert isinstance(error, BackendError) and isinstance(error.__cause__, KeyError)
    assert _files(error) == _files(error.__cause__) == {__file__}
    monkeypatch.setenv("FLAMBEAU_VERBOSE", "1")
    assert any("flambeau_capture" in file for file in _files(raised()))


def test_what_the_program_raises_is_its_own() -> None:
    """The same object's class, words and lines of the traceback as in plain Python."""

    class Mine(Exception):
        pass

    def check(x: torch.Tensor) -> None:
        if x.dim() != 2:
            raise Mine(f"{x.dim()} dimensions")

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        check(y)
        return y

    plain, compiled = _caught(lambda: f(torch.ones(2))), _caught(lambda: flambeau.compile(f)(torch.ones(2)))
    assert type(compiled) is type(plain) and str(compiled) == str(plain)

    def told(error: BaseException) -> list[tuple[str, int | None]]:
        return [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)][-2:]

    assert told(compiled) == told(plain)
