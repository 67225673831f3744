"""`flambeau bench`: engines in processes of their own, a table, a picture; bad input is one line and exit status 2."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from rich.console import Console

from flambeau.cli import contestant, main
from flambeau.cli.bench import table
from flambeau.cli.bench_picture import picture

Run = Callable[..., Result]

MODEL = """
import os
import torch

def make():
    with open(__file__ + ".made", "a") as file:
        print(os.getpid(), file=file)
    print("made")
    return torch.nn.Linear(8, 4), (torch.ones(2, 8),)

def raises():
    raise KeyError("weights")

def wrong():
    return torch.nn.Linear(8, 4)

def does_not_run():
    return torch.nn.Linear(8, 4), (torch.ones(2, 3),)
"""
COUNTS = """
import random
import numpy
import torch

class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x.add_(1) * self.calls

MODEL, X = Counts(), torch.ones(3)

def make():
    return MODEL, (X,)

def draws():
    scale = random.random() + numpy.random.rand()
    return (lambda x: x * scale), (torch.ones(3),)
"""
ROW: dict[str, Any] = {
    "first_seconds": 2.0, "median": 1e-3, "low": 9e-4, "high": 1.2e-3, "samples": 9, "peak_bytes": 2048, "difference": 0.0,
}  # fmt: skip
ROWS = [
    {"engine": "eager", **ROW},
    {"engine": "flambeau/max-autotune-no-cudagraphs", **ROW, "median": 5e-4, "difference": 3e-7},
    {"engine": "torch.compile", "error": "RuntimeError: <no> compiler"},
    {"engine": "flambeau", **ROW, "difference": None},
]


def measured(target: str, engine: str, folder: Path, train: bool = False) -> dict[str, Any]:
    """Eager's results, then the engine beside them, in this process."""
    program: dict[str, Any] = {"target": target, "train": train, "expected": str(folder / "expected.pt")}
    assert contestant.kept(**program) == {}
    return contestant.measured(**program, engine=engine, seconds=0.01)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture
def run(runner: CliRunner) -> Run:
    return lambda *words: runner.invoke(main, ["bench", *map(str, words)])


def test_two_engines(run: Run, model: Path, tmp_path: Path) -> None:
    """Each in a process of its own, in which the program is made once: numbers as JSON, and a picture of them."""
    drawn = tmp_path / "times.svg"
    words = [f"{model}:make", "--engines", "eager,flambeau", "--seconds", "0.05", "--json", "--save", str(drawn)]
    done = run(*words)
    assert done.exit_code == 0, done.stderr
    eager, ours = json.loads(done.stdout)
    assert (eager["engine"], ours["engine"]) == ("eager", "flambeau")
    assert eager["difference"] == 0 and ours["difference"] < 1e-5
    assert 0 < ours["low"] <= ours["median"] <= ours["high"] and ours["first_seconds"] > ours["median"]
    assert eager["peak_bytes"] >= 2 * 4 * 4
    ElementTree.fromstring(drawn.read_text())
    processes = Path(f"{model}.made").read_text().split()
    assert len(processes) == len(set(processes)) == 3


def test_training_in_this_process(model: Path, tmp_path: Path) -> None:
    """A step has its backward; gradients do not add up from step to step."""
    found = measured(f"{model}:make", "eager", tmp_path, train=True)
    assert found["device"] == "cpu" and found["difference"] == 0
    linear = torch.nn.Linear(2, 1)
    step = contestant._step(linear, linear, (torch.ones(1, 2),), {}, True)
    step()
    step()
    assert linear.weight.grad is not None and linear.weight.grad.tolist() == [[1.0, 1.0]]


def test_what_differs() -> None:
    """Relative to the largest number; nan beside nan is no difference, another shape is an infinite one."""
    nan = float("nan")
    assert contestant._difference([torch.tensor([1.0, nan])], [torch.tensor([2.0, nan])]) == 0.5
    assert contestant._difference([torch.ones(2)], [torch.ones(3)]) == float("inf")
    assert contestant._difference([torch.ones(0)], [torch.ones(0)]) == 0


@pytest.mark.parametrize(
    ("ours", "theirs", "difference"),
    [
        ([1.0, float("nan")], [1.0, 2.0], float("inf")),
        ([1.0, float("inf")], [1.0, 2.0], float("inf")),
        ([1.0, 2.0], [1.0, float("nan")], float("inf")),
        ([1.0, float("inf")], [1.0, -float("inf")], float("inf")),
        ([1.5, float("inf")], [1.0, float("inf")], 0.5),
        ([2, 7], [2, 4], 0.75),
        ([1j, 1 + 1j], [1j, 1 - 0j], 1.0),
    ],
)
def test_what_is_no_number_differs(ours: list[Any], theirs: list[Any], difference: float) -> None:
    """One nan or infinity beside a number is an infinite difference; the same infinity beside itself is none, and hides no other."""
    assert contestant._difference([torch.tensor(ours)], [torch.tensor(theirs)]) == difference


def test_what_a_call_changes_is_made_anew(tmp_path: Path) -> None:
    """A model that counts its calls, and writes to its argument, gives eager's result under the engine too; so does one drawn by other generators."""
    path = tmp_path / "model.py"
    path.write_text(COUNTS)
    for name in ("make", "draws"):
        found = measured(f"{path}:{name}", "eager", tmp_path)
        assert found["difference"] == 0, name


def test_an_infinite_difference_is_none_in_json(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestant, "compiled", lambda engine, function: lambda x: function(x) / 0)
    found = measured(f"{model}:make", "flambeau", tmp_path)
    assert found["difference"] is None and json.dumps(found, allow_nan=False)


def test_the_table_fits_a_terminal() -> None:
    """80 columns, with the speed beside eager's and no name torn but at a hyphen; what failed says so."""
    console = Console(width=74, record=True, force_terminal=False)
    console.print(table(ROWS))
    text = console.export_text()
    assert (
        "2.00" in text
        and "failed" in text
        and "…" not in text
        and "30%" in text
        and "500 µs" in text
        and " inf" in text
    )
    assert "\nflambeau/max-autotune- " in text and "\n no-cudagraphs " in text


def test_the_picture() -> None:
    """One bar for each number that there is; words are escaped."""
    drawn = picture("model.py:<make>", ROWS)
    root = ElementTree.fromstring(drawn)
    bars = [each for each in root.iter("{http://www.w3.org/2000/svg}rect") if each.get("rx")]
    assert ", 2.00x" in drawn and "was not quiet" in drawn
    quiet = picture("quiet", [{"engine": "eager", **ROW, "low": 9.8e-4, "high": 1.03e-3}])
    assert "was not quiet" not in quiet and "l5 3l-5 3" not in quiet
    assert len(bars) == 9 and "failed" in drawn and "&lt;make&gt;" in drawn


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["absent.py:make"], "there is no file 'absent.py'"),
        (["MODEL"], "names no function"),
        (["MODEL:raises"], "raised KeyError: 'weights' ("),
        (["MODEL:wrong"], "has to return (model, args)"),
        (["MODEL:does_not_run"], "raised RuntimeError"),
        (["MODEL:make", "--engines", "egaer"], "unknown engine 'egaer'"),
        (["MODEL:make", "--engines", "flambeau/fastest"], "unknown mode 'fastest'"),
        (["MODEL:make", "--engines", ","], "names none"),
        (["MODEL:make", "--save", "picture.png"], "ends with .svg"),
        (["MODEL:make", "--seconds", "0"], "0.0"),
    ],
)
def test_bad_input(run: Run, words: list[str], told: str, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 2, one line of error, no traceback. The engine is asked in this process: that it is another one, a test above sees."""

    def here(request: dict[str, Any], timeout: float, warm: bool) -> dict[str, Any]:
        return contestant.answer(request)

    monkeypatch.setattr(sys.modules["flambeau.cli.bench"], "_answer", here)
    done = run(*(word.replace("MODEL", str(model)) for word in words))
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert told in done.stderr.splitlines()[-1]


def test_an_engine_that_fails(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are shown, and the exit status is 1."""
    request = {"target": f"{model}:make", "engine": "flambeau/fastest", "train": False, "seconds": 0.01, "expected": ""}
    assert contestant.answer(request)["error"].startswith("UnknownName: ")
    rows = iter([{}, *ROWS])
    monkeypatch.setattr(sys.modules["flambeau.cli.bench"], "_answer", lambda *given: next(rows))
    done = run(f"{model}:make", "--engines", "eager,flambeau,torch.compile")
    assert "a spread above 10%" in done.stderr
    assert done.exit_code == 1 and "RuntimeError: <no> compiler" in done.stderr and "1 ms" in done.stdout


def test_a_program_whose_process_ends(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without eager's results no engine is started: that is told of the program, not of each engine."""
    answers = iter([{"error": "the process ended with status -11: no output"}])
    monkeypatch.setattr(sys.modules["flambeau.cli.bench"], "_answer", lambda *given: next(answers))
    done = run(f"{model}:make", "--engines", "eager,flambeau")
    assert done.exit_code == 2
    assert f"{model}:make in eager: the process ended with status -11" in done.stderr.splitlines()[-1]
