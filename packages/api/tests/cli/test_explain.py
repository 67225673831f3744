"""`flambeau explain`: scripts and functions; bad input is one line and exit status 2."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flambeau.cli import main

Run = Callable[..., Result]

SCRIPT = """
import sys
import torch
import flambeau

def breaks(x):
    y = x + 1
    print("words", sys.argv[1:])
    return y * 2

compiled = flambeau.compile(breaks, backend="eager")
never_called = flambeau.compile(torch.nn.Linear(2, 2))
if __name__ == "__main__":
    compiled(torch.ones(2))

def step():
    return torch.ones(3).sin() + 1

def model():
    return torch.nn.ReLU(), (torch.ones(2, 4),)

def raises():
    raise ValueError("no weights\\nat all")

number = 3
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def run(runner: CliRunner) -> Run:
    return lambda *words: runner.invoke(main, ["explain", *map(str, words)])


def test_a_script(script: Path) -> None:
    """In a process of its own: it has its words, and what it compiled and called is told."""
    command = [sys.executable, "-m", "flambeau", "explain", str(script), "--epochs", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "profiler_st" not in done.stderr
    assert "words ['--epochs', '3']" in done.stdout
    assert "graphs: 2, graph breaks: 1" in done.stdout and "script.py:8" in done.stdout
    assert "Linear" not in done.stdout


def test_a_function_as_json_and_as_a_page(run: Run, script: Path, tmp_path: Path) -> None:
    """The function is compiled and called; what the module prints is no part of the JSON."""
    page = tmp_path / "page.html"
    arguments = '{"backend": "eager"}'
    done = run("--json", "--html", page, "--no-measure", "--arguments", arguments, f"{script}:step")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    assert (found["name"], found["graph_count"], found["op_count"]) == ("step", 1, 3)
    assert "step" in page.read_text()


def test_what_a_function_makes(run: Run, script: Path) -> None:
    """A model with its arguments."""
    done = run("--json", "--no-measure", "--make", "--arguments", '{"backend": "eager"}', f"{script}:model")
    assert json.loads(done.stdout)[0]["name"] == "ReLU", done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["absent.py"], "there is no file 'absent.py'"),
        (["absent:step"], "there is no module 'absent'"),
        (["SCRIPT:stp"], "did you mean 'step'?"),
        (["SCRIPT:number"], "is no function but of type int"),
        (["SCRIPT:raises"], "raised ValueError: no weights; at all ("),
        (["SCRIPT:step", "more"], "options go before"),
        (["--make", "SCRIPT:step"], "has to return (model, args)"),
        (["--arguments", "{", "SCRIPT:step"], "--arguments is no JSON"),
        (["--arguments", '{"modes": 1}', "SCRIPT:step"], "unknown argument of compile 'modes'"),
        (["--make", "SCRIPT"], "are for a function"),
        (["--wrong", "SCRIPT"], "No such option"),
    ],
)
def test_bad_input(run: Run, words: list[str], told: str, script: Path) -> None:
    """Exit status 2, one line of error, no traceback."""
    done = run(*(word.replace("SCRIPT", str(script)) for word in words))
    assert done.exit_code == 2, done.output
    assert isinstance(done.exception, SystemExit)
    assert told in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def f(:\n", "SyntaxError"),
        ("import absent_library\n", "ModuleNotFoundError: No module named 'absent_library' ("),
        ("raise SystemExit(3)\n", "ended with 3"),
        ("x = 1\n", "called nothing that flambeau.compile made"),
    ],
)
def test_scripts_that_fail(run: Run, text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    done = run(path)
    assert done.exit_code == 2 and told in done.stderr, done.output
    if "Error" in told:
        done = run(f"{path}:step")
        assert done.exit_code == 2 and told in done.stderr, done.output
