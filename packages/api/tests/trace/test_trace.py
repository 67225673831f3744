"""Traces: what is written is whole and can be read, also where the writer ended in the middle; off, nothing is."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau import log
from flambeau.errors import TraceUnreadable
from flambeau.report.links import panes_of
from flambeau.report.model import compiles_of, spans_of
from flambeau.report.report import perfetto, report_html
from flambeau.report.stages import meaning
from flambeau.trace import KINDS, VERSION, read_trace
from flambeau.trace.memory import planned
from flambeau.trace.session import active
from flambeau.trace.writer import Writer
from flambeau_runtime.artifact import Alloc, Artifact, Free, InputSpec, OutputSpec, Program, View


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = torch.tanh(x @ w)
    return (y * y).sum()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    compiled = flambeau.compile(
        step, options={"trace.enabled": True, "trace.debug_dir": str(folder), "force_disable_caches": True}
    )
    for rows in (4, 5):
        w = torch.randn(8, 8, requires_grad=True)
        compiled(torch.randn(rows, 8), w).backward()
    return folder


def test_every_record_is_of_the_schema(traced: Path) -> None:
    (file,) = traced.glob("*.jsonl")
    for line in file.read_text().splitlines():
        record = json.loads(line)
        assert record["kind"] in KINDS
        assert {"time", "thread", "compile"} <= record.keys()


def test_what_a_compile_did_is_there(traced: Path) -> None:
    (process,) = read_trace(traced).processes
    assert process.facts["version"] == VERSION
    first = [record for record in process.records if record["compile"].endswith("/0")]
    kinds = {record["kind"] for record in first}
    assert {
        "frame_begin",
        "frame",
        "guards",
        "graph",
        "ir",
        "origins",
        "schedule",
        "program",
        "kernels",
        "memory",
        "source",
        "lifetimes",
        "bytecode",
        "frame_end",
    } <= kinds
    graphs = {(record["name"], record["program"]) for record in first if record["kind"] == "graph"}
    assert {
        ("captured", ""),
        ("joint", ""),
        ("forward", "forward"),
        ("backward", "backward"),
        ("post_grad", "forward"),
    } <= graphs


def test_a_recompile_says_why(traced: Path) -> None:
    begins = [record for _, record in read_trace(traced).of("frame_begin")]
    assert [len(record["misses"]) for record in begins] == [0, 1]
    assert "4" in begins[1]["misses"][0] and "5" in begins[1]["misses"][0]


def test_stages_begin_and_end(traced: Path) -> None:
    (process,) = read_trace(traced).processes
    begun = [record["stage"] for record in process.of("stage_begin")]
    ended = [record["stage"] for record in process.of("stage_end")]
    assert {"trace", "autograd", "lowering", "fusion", "load"} <= set(begun)
    assert sorted(begun) == sorted(stage for stage in ended if not stage.startswith("compile "))
    assert [stage for stage in {*begun, *ended} if not meaning(stage)] == []


def test_guards_have_a_cost(traced: Path) -> None:
    (_, record), *_ = read_trace(traced).of("guards")
    assert all(guard["text"] and guard["words"].endswith(".") for guard in record["guards"])
    assert any(guard["seconds"] is not None for guard in record["guards"])


def test_kernels_are_measured(traced: Path) -> None:
    rows = [row for _, record in read_trace(traced).of("kernels") for row in record["kernels"]]
    assert rows and all(row["seconds"] or row["note"] for row in rows)
    assert any(row["seconds"] for row in rows)


def test_nodes_lead_to_the_line_of_the_user(traced: Path) -> None:
    line = step.__code__.co_firstlineno + 1
    (nodes, *_) = [
        record["nodes"] for _, record in read_trace(traced).of("positions") if record["program"] == "forward"
    ]
    assert any(stack[-1][:2] == [__file__, line] for stack in nodes.values())


def test_random_numbers_of_the_program_are_its_own(tmp_path: Path) -> None:
    def draw(x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand(3)

    torch.manual_seed(0)
    expected = draw(torch.zeros(3))
    torch.manual_seed(0)
    compiled = flambeau.compile(draw, options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})
    assert torch.equal(compiled(torch.zeros(3)), expected)


def test_off_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flambeau.compile(step)(torch.randn(2, 3), torch.randn(3, 2))
    assert not list(tmp_path.iterdir())
    assert active() is None


def test_a_folder_in_the_environment_switches_it_on(tmp_path: Path) -> None:
    program = "import flambeau, torch\nflambeau.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2))"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "FLAMBEAU_TRACE": str(tmp_path)}, check=True)
    assert any(True for _ in read_trace(tmp_path).of("frame_begin"))


def test_a_source_is_written_once(tmp_path: Path) -> None:
    """Also the one that is named before the first record."""
    options = {"trace.enabled": True, "trace.debug_dir": str(tmp_path)}
    flambeau.compile(lambda x: x + 1, backend="eager", options=options)(torch.ones(2))
    (file,) = tmp_path.glob("*.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [record["path"] for record in records if record["kind"] == "file"] == [__file__]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write("log", event="a")
    (file,) = tmp_path.iterdir()
    with file.open("ab") as stream:
        stream.write(b'{"kind":"log","ti')
    (process,) = read_trace(file).processes
    assert [record["event"] for record in process.of("log")] == ["a"]
    assert process.damaged == 1


def test_what_json_has_no_form_for_is_written_as_text(tmp_path: Path) -> None:
    Writer(tmp_path).write("log", event="a", fields={"dtype": torch.float32, "text": "\ud800"})
    (process,) = read_trace(tmp_path).processes
    assert next(process.of("log"))["fields"]["dtype"] == "torch.float32"


def test_a_child_writes_its_own_file(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write("log", event="parent")
    if (child := os.fork()) == 0:
        writer.write("log", event="child")
        os._exit(0)
    os.waitpid(child, 0)
    trace = read_trace(tmp_path)
    assert sorted(next(process.of("log"))["event"] for process in trace.processes) == ["child", "parent"]


@pytest.mark.parametrize("content", [None, "", '{"kind": "log"}\n', '{"kind": "process", "version": 0}\n'])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(TraceUnreadable):
        read_trace(tmp_path)


def test_listeners_hear_what_is_not_shown() -> None:
    heard: list[str] = []

    def listener(level: str, event: object) -> None:
        heard.append(level)

    log.listen(listener)
    log.listen(listener)
    try:
        log.logger.debug("something")
    finally:
        log.forget(listener)
    log.logger.debug("something")
    assert heard == ["debug"]


def test_planned_memory_follows_allocations() -> None:
    spec = InputSpec("tensor", 0, torch.float32, "cpu", (4,), (1,))
    steps = [
        Alloc(1, (8,), (1,), torch.float32),
        View(2, 1, (4,), (1,)),
        Free((1,)),
        Alloc(3, (2, 3), (3, 1), torch.int8),
        Free((2, 3)),
    ]
    program = Program(steps, 4, 0, (spec,), (OutputSpec("input", 0),))
    rows = planned(Artifact(program))
    assert [amount for _, amount in rows] == [32, 32, 38]


def test_what_goes_wrong_in_a_trace_spares_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(artifact: Artifact) -> None:
        raise ValueError("no memory plan")

    monkeypatch.setattr("flambeau.trace.programs.planned", fails)
    compiled = flambeau.compile(step, options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    torch.testing.assert_close(compiled(x, w), step(x, w))
    told = [record for _, record in read_trace(tmp_path).of("log") if record["event"] == "trace failed"]
    assert "no memory plan" in told[0]["fields"]["error"]


def test_what_was_fused_is_drawn_beside_the_trace(tmp_path: Path) -> None:
    options = {"trace.debug_dir": str(tmp_path), "trace.graph_diagram": True, "force_disable_caches": True}
    flambeau.compile(step, options=options)(torch.randn(4, 8), torch.randn(8, 8))
    (picture,) = tmp_path.glob("fusion-*-forward.svg")
    assert picture.read_text().startswith("<svg xmlns=")


def test_a_report_is_made_of_a_trace(traced: Path, tmp_path: Path) -> None:
    trace = read_trace(traced)
    page = report_html(trace, trace)
    for section in (
        "comparison",
        "timeline",
        "frames",
        "code",
        "fusion",
        "memory",
        "kernels",
        "recompiles",
        "guards",
        "caches",
        "cuda-graphs",
    ):
        assert f'<section id="{section}"' in page
    assert 'id="data-panes-0-forward"' in page
    assert any(event["ph"] == "X" and event["name"] == "lowering" for event in perfetto(trace)["traceEvents"])


def test_lines_that_came_from_each_other_share_a_node(traced: Path) -> None:
    compile, *_ = compiles_of(read_trace(traced))
    panes = {pane["name"]: pane for pane in panes_of(compile, "forward")}
    assert {
        "source",
        "bytecode",
        "captured",
        "graph",
        "loops",
        "kernels",
        "kernel_ir",
        "sources",
        "program",
    } <= panes.keys()
    (line,) = [at for at, text in enumerate(panes["source"]["lines"]) if "torch.tanh(x @ w)" in text]
    about = set(panes["source"]["keys"][line])
    assert about
    for name, pane in panes.items():
        assert any(about.intersection(keys) for keys in pane["keys"]), name


def test_a_wrapper_is_named_by_the_module_that_it_belongs_to(tmp_path: Path) -> None:
    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def wrapper(self: torch.nn.Module, x: torch.Tensor) -> Any:
            return forward(self, x)

        return wrapper

    class Scaled(torch.nn.Module):
        @wrapped
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    flambeau.compile(Scaled(), options={"trace.enabled": True, "trace.debug_dir": str(tmp_path)})(torch.ones(2))
    (title,) = [compile.title for compile in compiles_of(read_trace(tmp_path))]
    assert "Scaled" in title and title.endswith("wrapper") and "<locals>" not in title


def test_processes_and_their_threads_are_told_apart(tmp_path: Path) -> None:
    """Compilers of kernels that did not run at once share a band; numbers of compiles have the process with them."""
    for name in ("a", "b"):
        writer = Writer(tmp_path / name)
        writer.write("frame_begin", "0/0", function="f", file="a.py", line=1, entry=0, region="", misses=[])
        writer.write("frame_end", "0/0", error="")
    records = [
        {"kind": "stage_end", "time": time, "thread": thread, "compile": "0/0", "stage": "compile x", "seconds": 1.0}
        for time, thread in ((2.0, 101), (2.5, 102), (4.0, 103))
    ]
    for at, name in enumerate("ab"):
        (file,) = (tmp_path / name).glob("*.jsonl")
        text = "".join(json.dumps(record) + "\n" for record in records if name == "a")
        (tmp_path / f"{name}.jsonl").write_text(
            file.read_text().replace(f'"pid":{os.getpid()}', f'"pid":{at + 1}') + text
        )
    trace = read_trace(tmp_path)
    assert [compile.title for compile in compiles_of(trace)] == ["process 1 [0/0] f", "process 2 [0/0] f"]
    page = report_html(trace)
    assert "process 1, compilers of kernels 2" in page and "compilers of kernels 3" not in page


def test_a_stage_that_never_ended_has_no_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write("frame_begin", "0/0", function="f", file="a.py", line=1, entry=0, region="", misses=[])
    writer.write("stage_begin", "0/0", stage="trace")
    (process,) = read_trace(tmp_path).processes
    assert [(span.name, span.seconds, span.depth) for span in spans_of(process)] == [("f", None, 0), ("trace", None, 1)]
    assert "never ended" in report_html(read_trace(tmp_path))
