"""`flambeau doctor`: each finding with its remedy, and a compile on every device."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from flambeau.cli import main
from flambeau_runtime.errors import CompilerUnavailable

doctor: Any = importlib.import_module("flambeau.cli.doctor")


def test_a_sound_machine() -> None:
    """In a process of its own: everything is looked at, the CPU compiles, nothing fails."""
    done = subprocess.run([sys.executable, "-m", "flambeau", "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for what in ("python", "torch", "processor", "triton", "gpu", "compiler", "cache", "compile"):
        assert any(line[3:].startswith(what) for line in lines), what
    assert "on cpu: " in done.stdout and "results and gradients as in eager" in done.stdout


def _refuse() -> Any:
    raise CompilerUnavailable("none answers")


@pytest.mark.parametrize(
    ("place", "value", "finding", "remedy"),
    [
        ("PYTHON_RANGE", ((3, 4), (3, 5)), "python", "virtual environment"),
        ("TORCH_RANGE", ((1, 0), (1, 9)), "torch", "pip install 'torch>=1.0,<1.10'"),
        ("find_toolchain", _refuse, "compiler", "apt-get install g++"),
    ],
)
def test_what_fails_has_a_remedy(
    place: str, value: Any, finding: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1, and a line that says what to do."""
    monkeypatch.setattr(doctor, place, value)
    monkeypatch.setattr(doctor, "devices", list)
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("!!")]
    assert lines[number].split()[1] == finding and remedy in lines[number + 1]


def test_a_gpu_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver answers, and torch does not see the device: why, and what to do."""
    monkeypatch.setattr(doctor, "_driver", lambda: "570.1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for built, words in ((None, "built for CPUs"), ("12.8", "CUDA_VISIBLE_DEVICES")):
        monkeypatch.setattr(torch.version, "cuda", built)
        (found,) = doctor.gpus()
        assert found.state == "fails" and words in found.found and found.remedy


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "file"))
    found = doctor.cache()
    assert found.state == "fails" and "FLAMBEAU_CACHE_DIR" in found.remedy


def test_a_compile_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of a stage, and wrong results, are findings, not tracebacks."""

    def program(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("boom")

    monkeypatch.setattr(doctor, "_program", lambda: program)
    found = doctor.small_compile("cpu")
    assert found.state == "fails" and "boom" in found.found and found.remedy
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.zeros(2)
    assert doctor._wrong(lambda x: x.sum(), x, torch.tensor(2.0)) == "the gradient is not eager's"
