"""`flambeau doctor`: each finding with its remedy, and a compile on every device."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from flambeau.cli import main
from flambeau_runtime.errors import CompilerUnavailable

doctor: Any = importlib.import_module("flambeau.cli.doctor")


def test_a_sound_machine() -> None:
    """Everything is looked at, the CPU compiles, nothing fails."""
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    for what in ("python", "torch", "processor", "triton", "gpu", "compiler", "cache", "compile"):
        assert any(line[3:].startswith(what) for line in lines), what
    assert lines[-1] == "flambeau compiles here"
    assert "on cpu: " in done.stdout and "results and gradients as in eager" in done.stdout


def _refuse() -> Any:
    raise CompilerUnavailable("none answers")


def test_what_fails_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit status 1, and a line that says what to do."""
    monkeypatch.setattr(doctor, "find_toolchain", _refuse)
    monkeypatch.setattr(doctor, "devices", list)
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1
    lines = done.output.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("!!")]
    assert lines[number].split()[1] == "compiler" and "apt-get install g++" in lines[number + 1]
    assert lines[-1] == "1 check failed"


def test_triton_by_whatever_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be imported counts: distributions of it have several names, or none. Without it a GPU is of no use."""
    monkeypatch.setattr(doctor, "find_spec", lambda name: name)
    for distributions, told in (({"triton": ["torch"]}, torch.__version__), ({}, "of an unknown version")):
        monkeypatch.setattr(doctor.importlib.metadata, "packages_distributions", lambda found=distributions: found)
        assert (doctor.triton().state, doctor.triton().found) == ("ok", told)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    for is_there, state in ((True, "fails"), (False, "note")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda found=is_there: found)
        assert doctor.triton().state == state


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

    def refuse(folder: Path) -> Path:
        raise PermissionError(folder)

    monkeypatch.setattr(doctor, "_existing", refuse)
    assert doctor.cache().state == "fails"


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


def test_a_device_that_cannot_be_used() -> None:
    """Its first use raises: that is a finding too."""
    found = doctor.small_compile("nowhere")
    assert found.state == "fails" and "on nowhere: RuntimeError: " in found.found and found.remedy


def test_a_compile_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right results are not enough."""
    monkeypatch.setenv("FLAMBEAU_DISABLE", "1")
    found = doctor.small_compile("cpu")
    assert found.state == "fails" and "on cpu: it runs in eager: " in found.found
