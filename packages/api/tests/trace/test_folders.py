"""Debug folders: whole or not there, readable, with a script that runs; what the disk refuses spares the program."""

from __future__ import annotations

import gc
import json
import runpy
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import flambeau
from flambeau.trace import read_trace
from flambeau.trace.folders import Folders
from flambeau.trace.texts import files_of_records


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    return (y * y).sum()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a compile with a backward."""
    folder = tmp_path_factory.mktemp("debug")
    options = {"debug_folder": str(folder), "compile_debug_save_real": True}
    w = torch.ones(8, 8, requires_grad=True)
    flambeau.compile(step, options=options)(torch.full((4, 8), 3.0), w).backward()
    (found,) = folder.glob("process-*/*")
    return found


def test_every_stage_has_its_file(place: Path) -> None:
    assert place.name.endswith("_0-step")
    top = {"bytecode_before.txt", "bytecode_after.txt", "graph_captured.py", "graph_joint.txt", "guards.txt"}
    top |= {"compile.json", "log.txt", "run.py", "inputs.pt", "forward", "backward"}
    assert {path.name for path in place.iterdir()} == top
    for program in ("forward", "backward"):
        found = {path.name for path in (place / program).iterdir()}
        assert {"graph.py", "graph_post_grad.py", "ir_pre_fusion.txt", "ir_post_fusion.txt", "ir_kernels.txt"} <= found
        assert {"schedule.txt", "fusion.txt", "memory.txt", "program.txt", "kernels_cpp.cpp"} <= found
        assert "launch" in (place / program / "program.txt").read_text()
        assert 'extern "C"' in (place / program / "kernels_cpp.cpp").read_text()


def test_the_lines_of_the_user_stand_beside_what_they_became(place: Path) -> None:
    line = "y = torch.tanh(x @ w)"
    number = step.__code__.co_firstlineno + 1
    assert f"# {number}: {line}" in (place / "bytecode_before.txt").read_text()
    for file in ("graph_captured.py", "forward/graph.py", "forward/graph_post_grad.py"):
        assert f"    # {__file__}:{number} in step: {line}\n" in (place / file).read_text()
    assert f"# needed at {__file__}:{number} in step" in (place / "guards.txt").read_text()


def test_a_summary_and_a_log(place: Path) -> None:
    summary = json.loads((place / "compile.json").read_text())
    assert summary["function"] == "step" and summary["error"] == "" and summary["operations"] == 4
    assert "stage_begin stage=lowering program=backward" in (place / "log.txt").read_text()


def test_the_script_runs_with_the_inputs_of_the_first_call(place: Path) -> None:
    x, _ = torch.load(place / "inputs.pt")
    assert bool((x == 3).all())
    done = subprocess.run([sys.executable, str(place / "run.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_script_without_inputs_draws_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the same layout, also of memory that is used twice; nothing is asked of symbols that would become a guard."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")  # as the script does, for good

    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x + y,))

    compiled = flambeau.compile(scaled, backend="eager", dynamic=True, options={"debug_folder": str(tmp_path)})
    given = torch.ones(3, 4).t(), torch.ones(3, dtype=torch.int32).expand(4, 3)
    compiled(*given)
    compiled(torch.ones(5, 6).t(), torch.ones(5, dtype=torch.int32).expand(6, 5))
    (place,) = tmp_path.glob("process-*/*")
    drawn = runpy.run_path(str(place / "run.py"))["inputs"]()
    assert [(v.shape, v.stride(), v.dtype) for v in drawn if isinstance(v, torch.Tensor)] == [
        (v.shape, v.stride(), v.dtype) for v in given
    ]


def test_a_compile_that_fails_has_a_folder_that_says_so(tmp_path: Path) -> None:
    def bad(graph: object, inputs: object) -> object:
        raise KeyError("mine")

    with pytest.raises(flambeau.errors.BackendError):
        flambeau.compile(lambda x: x + 1, backend=bad, options={"debug_folder": str(tmp_path)})(torch.ones(2))
    (place,) = tmp_path.glob("process-*/*")
    assert "mine" in json.loads((place / "compile.json").read_text())["error"]
    assert "x" in (place / "graph_captured.py").read_text() and (place / "run.py").exists()


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a debug folder nor a trace; the program goes on."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    options = {"debug_folder": str(blocked / "in"), "trace.debug_dir": str(blocked / "in")}
    for _ in range(2):
        compiled = flambeau.compile(lambda x: x.sin() + 1, backend="eager", options=options)
        assert torch.equal(compiled(torch.zeros(2)), torch.ones(2))
    told = capsys.readouterr().err
    assert told.count("debug_folder_not_written") == told.count("trace_not_written") == 1


def test_nothing_is_left_of_a_folder_whose_writing_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, write = Folders(tmp_path), Path.write_text

    def full(self: Path, text: str, **arguments: object) -> int:
        if self.name == "log.txt":
            raise OSError("no space left")
        return write(self, text, **arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "write_text", full)
    folders.write("frame_begin", "0/0", function="f", file="", line=1, entry=0, region="", misses=[])
    folders.write("frame_end", "0/0", error="")
    (process,) = tmp_path.iterdir()
    assert not list(process.iterdir())


def test_nothing_is_left_of_inputs_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = Folders(tmp_path)
    folders.write("frame_begin", "0/0", function="f", file="", line=1, entry=0, misses=[])
    folders.write("frame_end", "0/0", error="")

    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    folders.add("0/0", {"inputs.pt": b"some"})
    assert {path.name for path in tmp_path.glob("*/*/*")} == {"compile.json", "log.txt"}


def test_what_comes_later_is_appended_to_the_log(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    for _ in range(2):
        folders.write("frame_begin", "0/0", function="f.<locals>.<lambda>", file="", line=1, entry=0, misses=[])
        folders.write("frame_end", "0/0", error="")
    folders.write("cuda_graph", "0/0", program="forward", decision="recorded", reason="", position=[])
    folders.write("cuda_graph", "7/0", program="forward", decision="recorded", reason="", position=[])
    names = sorted(path.name for path in next(tmp_path.iterdir()).iterdir())
    assert names == ["0_0-f._lambda", "0_0-f._lambda-2"]
    assert (
        "later     cuda_graph program=forward decision=recorded"
        in next(tmp_path.glob("*/0_0-f._lambda-2/log.txt")).read_text()
    )


def test_a_trace_and_folders_are_written_together(tmp_path: Path) -> None:
    options = {"debug_folder": str(tmp_path / "debug"), "trace.debug_dir": str(tmp_path / "trace")}
    flambeau.compile(lambda x: x + 1, backend="eager", options=options)(torch.ones(2))
    assert list((tmp_path / "debug").glob("process-*/*/run.py"))
    graphs = [record["name"] for _, record in read_trace(tmp_path / "trace").of("graph")]
    assert graphs == ["captured"]


def test_values_of_the_first_call_are_let_go(tmp_path: Path) -> None:
    """Though the graph keeps what its later records are written with."""
    options = {"debug_folder": str(tmp_path), "compile_debug_save_real": True}
    compiled = flambeau.compile(lambda x: x + 1, backend="eager", options=options)
    x = torch.ones(2)
    given = weakref.ref(x)
    compiled(x)
    del x
    gc.collect()
    assert list(tmp_path.glob("process-*/*/inputs.pt")) and given() is None


def test_a_later_text_takes_the_place_of_an_earlier_one() -> None:
    """A stage that refused runs again otherwise."""
    texts = [{"kind": "ir", "time": 0.0, "form": "lowering", "program": "forward", "text": text} for text in "ab"]
    assert files_of_records(texts)["forward/ir_pre_fusion.txt"] == "b\n"
