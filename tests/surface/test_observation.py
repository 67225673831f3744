"""What a process is told to write down and to show: debug folders, kept arguments, logs, tracebacks, our failures."""

from __future__ import annotations

import cProfile
import pstats
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
import flambeau_inductor
from flambeau.compiler import config
from flambeau.errors import BackendError, InternalError, InvalidOption
from flambeau.trace import profiles
from tests import scripts

from .rows import calls

PROGRAM = """
import torch, flambeau
def halved(x): return torch.tanh(x) / 2
flambeau.compile(halved, backend="eager")(torch.ones(3))
"""


def halved(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x) / 2


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    """Assignments are taken back."""
    yield
    for name in config.names():
        config._taken_back(name)
    flambeau.log.copy_to(None)


def run(path: Path) -> None:
    """A script in a process of its own."""
    done = scripts.run_file(path)
    assert done.status == 0, done.stderr


@calls("environment", "COMPILE_DEBUG", "COMPILE_DEBUG_DIR", "COMPILE_DEBUG_SAVE_REAL")
@calls("tools", "debug_folder")
def test_a_folder_about_each_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stages of the graph, though it was compiled before, and a script that runs it on the inputs of the call."""
    flambeau.compile(halved)(torch.full((4,), 7.0))
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG_DIR", str(tmp_path))
    flambeau.compile(halved)(torch.full((4,), 7.0))
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG", "1")
    flambeau.compile(halved)(torch.full((4,), 7.0))
    (place,) = tmp_path.glob("process-*/*-halved")
    for file in ("bytecode_before.txt", "graph_captured.py", "forward/ir_post_fusion.txt", "forward/program.txt"):
        assert "tanh" in (place / file).read_text()
    assert not (place / "inputs.pt").exists()
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG_SAVE_REAL", "1")
    flambeau.compile(halved)(torch.full((4,), 7.0))
    (saved,) = tmp_path.glob("process-*/*-halved*/inputs.pt")
    (given,) = torch.load(saved)
    assert torch.equal(given, torch.full((4,), 7.0))
    run(saved.with_name("run.py"))


def test_a_variable_that_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_DEBUG", str(tmp_path))
    flambeau.compile(halved, backend="eager")(torch.ones(4))
    (script,) = tmp_path.glob("process-*/*-halved/run.py")
    run(script)


@calls("environment", "SAVE_ARGS")
def test_arguments_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every graph, with a script that compiles and calls it again."""
    monkeypatch.setenv("FLAMBEAU_REPRO_DIR", str(tmp_path))
    monkeypatch.setenv("FLAMBEAU_SAVE_ARGS", "1")
    assert torch.equal(flambeau.compile(halved, backend="eager")(torch.zeros(3)), torch.zeros(3))
    (kept,) = tmp_path.iterdir()
    (given,) = torch.load(kept / "inputs.pt")
    assert torch.equal(given, torch.zeros(3))
    run(kept / "repro.py")


@calls("environment", "COMPILE_CPROFILE")
def test_a_compile_is_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a file that `pstats` reads; one that cannot be written spares the program."""
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG_DIR", str(tmp_path / "in"))
    monkeypatch.setenv("FLAMBEAU_COMPILE_CPROFILE", "1")
    flambeau.compile(halved, backend="eager")(torch.ones(3))
    (file,) = (tmp_path / "in").glob("*-halved-*.prof")
    assert any(function == "capture_frame" for _, _, function in pstats.Stats(str(file)).stats)  # type: ignore[attr-defined]
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG_DIR", str(file / "in"))
    assert torch.equal(flambeau.compile(halved, backend="eager")(torch.zeros(3)), torch.zeros(3))


@pytest.mark.parametrize("of_program", [cProfile.Profile, None], ids=["cProfile", "setprofile"])
def test_the_profiler_of_the_program_stays(
    of_program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It sees the compiles and what comes behind them; one warning says that they have no files."""
    monkeypatch.setenv("FLAMBEAU_COMPILE_DEBUG_DIR", str(tmp_path))
    monkeypatch.setenv("FLAMBEAU_COMPILE_CPROFILE", "1")
    profiles._say_left_out.cache_clear()
    seen: set[str] = set()

    def compiled_twice() -> None:
        for value in (1, 2):
            flambeau.compile(lambda x: x + value, backend="eager")(torch.ones(3))  # noqa: B023  # called at once
        behind()

    def behind() -> None:
        """What the program does then."""

    if of_program is None:
        sys.setprofile(lambda frame, event, argument: seen.add(frame.f_code.co_name))
        try:
            compiled_twice()
        finally:
            sys.setprofile(None)
    else:
        profile = of_program()
        profile.runcall(compiled_twice)
        seen = {function for _, _, function in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert {"capture_frame", "behind"} <= seen
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err.count("compiles_not_profiled") == 1


@calls("environment", "OVERRIDE_BACKENDS")
def test_other_backends_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the one that the call names; a rule that no graph fits changes nothing."""
    monkeypatch.setenv("FLAMBEAU_OVERRIDE_BACKENDS", ">=0:eager")
    assert torch.equal(flambeau.compile(halved, backend=bad)(torch.zeros(3)), torch.zeros(3))
    monkeypatch.setenv("FLAMBEAU_OVERRIDE_BACKENDS", ">1000000:eager")
    with pytest.raises(BackendError, match="mine"):
        flambeau.compile(halved, backend=bad)(torch.zeros(3))


@calls("environment", "LOGS")
def test_logs_of_a_process(tmp_path: Path) -> None:
    """What is named is on standard error, and nothing without."""

    def told(logs: str) -> str:
        done = scripts.run(PROGRAM, tmp_path, FLAMBEAU_LOGS=logs)
        assert (done.status, done.stdout) == (0, "")
        return done.stderr

    assert told("") == ""
    assert "torch.tanh(" in told("graph_code") and "[flambeau graph_code]" in told("+graph_code")


@calls("settings", "log_file_name")
def test_a_file_for_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Beside standard error, from the next compile call on, until it is taken back."""
    file = tmp_path / "in" / "log.txt"
    config.log_file_name = str(file)
    flambeau.compiler.set_logs("graph_code")
    try:
        flambeau.compile(halved, backend="eager")(torch.ones(3))
        assert "torch.tanh(" in file.read_text() and "torch.tanh(" in capsys.readouterr().err
        del config.log_file_name
        before = file.read_text()
        flambeau.compile(halved, backend="eager")(torch.ones(3))
        assert file.read_text() == before
    finally:
        flambeau.compiler.set_logs()
    config.log_file_name = str(file / "impossible")
    with pytest.raises(InvalidOption, match="log_file_name"):
        flambeau.compile(halved)


def bad(graph: Any, inputs: Any) -> Any:
    raise KeyError("mine")


def files(call: Callable[[], Any]) -> set[str]:
    """The files in the traceback of what a call raises."""
    with pytest.raises(BackendError) as caught:
        call()
    return {Path(frame.filename).parts[-2] for frame in traceback.extract_tb(caught.value.__cause__.__traceback__)}  # type: ignore[union-attr]


@pytest.mark.compiles(graphs=0)
@calls("environment", "VERBOSE")
@calls("settings", "verbose")
def test_frames_of_flambeau(monkeypatch: pytest.MonkeyPatch) -> None:
    """In tracebacks where they are asked for, by variable or setting; else the user's alone."""

    def call() -> Any:
        return flambeau.compile(halved, backend=bad)(torch.ones(2))

    monkeypatch.delenv("FLAMBEAU_VERBOSE", raising=False)
    assert files(call) == {"surface"}
    monkeypatch.setenv("FLAMBEAU_VERBOSE", "1")
    assert "flambeau_capture" in files(call)
    monkeypatch.delenv("FLAMBEAU_VERBOSE")
    with config.patch(verbose=True):
        assert "flambeau_capture" in files(call)
    assert files(call) == {"surface"}


@pytest.mark.falls_back("the backend answered with the graph as it is")
@calls("settings", "suppress_errors")
def test_our_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """One warning and eager's result, or an error that says whose fault it is; with `verbose` the warning has our frames."""

    def fails(*given: Any) -> Any:
        raise RuntimeError("no kernel today")

    monkeypatch.setattr(flambeau_inductor, "compile_frozen", fails)
    options = {"force_disable_caches": True}
    config.suppress_errors = False
    with pytest.raises(InternalError, match="no kernel today"):
        flambeau.compile(halved, options=options)(torch.zeros(3))
    config.suppress_errors = True
    with pytest.warns(RuntimeWarning, match="no kernel today") as told:
        assert torch.equal(flambeau.compile(halved, options=options)(torch.zeros(3)), torch.zeros(3))
    assert "Traceback" not in str(told[0].message)
    config.verbose = True
    with pytest.warns(RuntimeWarning, match="no kernel today") as told:
        flambeau.compile(halved, options=options)(torch.zeros(3))
    assert "in fails" in str(told[0].message)
