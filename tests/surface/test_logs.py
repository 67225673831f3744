"""The logs of torch.compile under their names: what each shows of small programs, where it goes, in which form."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau import log
from flambeau.compiler import set_logs
from flambeau.errors import InvalidOption, UnknownName
from tests import scripts
from tests.texts import COMPILED_ANEW, lines_with, shown

from .rows import calls

LINE = "return torch.relu(x.sin() @ w).sum()"


@pytest.fixture(autouse=True)
def own_configuration() -> Iterator[None]:
    """Leave logs as they were."""
    yield
    set_logs()


def weighted(x: Tensor, w: Tensor) -> Tensor:
    """A product with work before and after it."""
    return torch.relu(x.sin() @ w).sum()


def arguments(size: int = 4) -> tuple[Tensor, Tensor]:
    """What it is called with."""
    return torch.randn(size, 4), torch.randn(4, 4, requires_grad=True)


def halved(x: Tensor) -> Tensor:
    """What `twice` calls."""
    return x / 2


def twice(x: Tensor) -> Tensor:
    """Two lines, one of which is run twice."""
    for _ in range(2):
        x = halved(torch.sin(x))
    return x


@calls("logs", "trace_source", "trace_call", "trace_bytecode")
def test_a_trace_is_told_as_it_goes_on() -> None:
    """Each line once for each time it is come to, each call under a mark, each instruction with the stack before it; nothing of that for who asks for less."""
    text = shown("trace_source", twice, (torch.ones(3),))
    told = lines_with(text, "[flambeau trace_source] trace_source")
    assert [re.findall(r"source=(.*) id=", line)[0] for line in told] == [
        "for _ in range(2):",
        *["x = halved(torch.sin(x))", "return x / 2", "x = halved(torch.sin(x))", "for _ in range(2):"] * 2,
        "return x",
    ]
    assert f"function=halved at={__file__}:{halved.__code__.co_firstlineno + 2} " in told[2]

    text = shown("trace_call", twice, (torch.ones(3),))
    line = "        x = halved(torch.sin(x))"
    outer, inner = (
        "\n".join(" " * 4 + part for part in (line, " " * start + mark))
        for start, mark in ((12, "^" * 20), (19, "^" * 12))
    )
    assert text.count(outer + "\n") == text.count(inner + "\n") == 2
    assert text.count("[flambeau trace_call] trace_call") == 5

    text = shown("trace_bytecode", weighted, arguments())
    assert lines_with(text, "trace_bytecode] trace_bytecode instruction=LOAD_FAST 'x' stack=[")
    (product,) = lines_with(text, "instruction=BINARY_OP")
    assert ", a tensor float32[4, 4], a tensor float32[4, 4]]" in product
    assert "trace_" not in shown("bytecode,debug", twice, (torch.ones(3),))


@calls("logs", "recompiles", "recompiles_verbose", "guards", "verbose_guards", "graph_breaks")
def test_capture_tells_of_guards_and_breaks() -> None:
    """Each guard; with `verbose_guards` the user's line that needs it; why a frame is compiled again."""
    text = shown(
        "recompiles,recompiles_verbose,guards,verbose_guards", weighted, arguments(), arguments(5), dynamic=False
    )
    assert "[flambeau recompiles] recompile" in text and "expected 4, actual 5" in text
    assert "[flambeau recompiles_verbose]" in text and "[flambeau guards]" in text
    verbose = text.split("[flambeau verbose_guards]")[1]
    assert "TensorMatch: " in verbose and f"in weighted: {LINE}" in verbose

    def printed(x: Tensor) -> Tensor:
        y = x + 1
        flambeau.compiler.graph_break()
        return y * 2

    assert "test_logs.py:" in shown("graph_breaks", printed, (torch.ones(2),))


@calls(
    "logs", "graph_code", "graph", "graph_sizes", "pre_grad_graphs", "aot_joint_graph", "aot_graphs", "post_grad_graphs"
)
def test_graphs_are_shown_at_every_stage() -> None:
    """As captured, as autograd gets it, joint, cut in two, after inductor's passes."""
    names = (
        "graph_code",
        "graph",
        "graph_sizes",
        "pre_grad_graphs",
        "aot_joint_graph",
        "aot_graphs",
        "post_grad_graphs",
    )
    text = shown(",".join(names), weighted, arguments())
    parts = {name: text.split(f"[flambeau {name}]")[1].split("[flambeau")[0] for name in names}
    assert "matmul" in parts["pre_grad_graphs"] and "def forward" in parts["pre_grad_graphs"]
    assert "aten.mm" in parts["aot_graphs"] and "aten.mm" in parts["aot_joint_graph"]
    assert "(4, 4)" in parts["graph_sizes"] and "opcode" in parts["graph"] and "mm" in parts["post_grad_graphs"]
    assert "matmul" in parts["graph_code"]


@calls("logs", "side_effects", "bytecode")
def test_effects_and_code_that_replace_a_frame() -> None:
    """What is written after the graph, and the instructions."""
    seen: list[Tensor] = []

    def kept(x: Tensor) -> Tensor:
        seen.append(x + 1)
        return x * 2

    text = shown("side_effects,bytecode", kept, (torch.ones(2),))
    assert "[flambeau side_effects]" in text and "RETURN_VALUE" in text.split("[flambeau bytecode]")[1]


@calls("logs", "bytecode")
def test_rewritten_code_is_shown_as_source() -> None:
    """The statements say what runs in place of the function, part by part."""

    def f(x):
        y = x + 1
        print("between")
        z = y * 2
        return z

    after = f.__code__.co_firstlineno + 2
    text = shown("bytecode", f, (torch.ones(2),), backend="eager")
    whole = text.partition("\n  source:")[2].partition("[flambeau bytecode]")[0]
    assert re.search(r"__temp_\d = <builtin_function_or_method print>", whole)
    assert re.search(r"__temp_\d = __temp_\d\('between'\)", whole)
    assert re.search(r"return <\w+ hand_over>\(\S+f.resume_at_\d+, __temp_\d, y\)", whole)
    assert f"def {f.__code__.co_qualname}.resume_at_{after}(__stack_0, y):" in whole


@calls("logs", "graph_code_verbose")
def test_passes_before_autograd_show_what_they_made() -> None:
    """Here the one that compiles layers that are alike once."""
    layers = torch.nn.Sequential(
        *(torch.nn.Sequential(*(torch.nn.Linear(4, 4), torch.nn.Tanh()) * 2) for _ in range(9))
    )
    text = shown("graph_code_verbose", layers, (torch.randn(2, 4),))
    assert "made_by=repeats" in text and "invoke_subgraph" in text


@calls(
    "logs",
    "ir_pre_fusion",
    "ir_post_fusion",
    "fusion",
    "schedule",
    "compute_dependencies",
    "loop_ordering",
    "loop_tiling",
)
def test_the_scheduler_tells_what_it_does() -> None:
    """What depends on what, what was fused, in which order all runs, how loops lie and are cut."""
    names = (
        "ir_pre_fusion",
        "ir_post_fusion",
        "fusion",
        "schedule",
        "compute_dependencies",
        "loop_ordering",
        "loop_tiling",
    )

    def moved(x: Tensor, w: Tensor) -> Tensor:
        return (x.sin().t().contiguous() + 1) @ w

    text = shown(",".join(names), moved, (torch.randn(64, 48), torch.randn(64, 300)))
    parts = {name: text.split(f"[flambeau {name}]")[1].split("[flambeau")[0] for name in names}
    assert " <- " in parts["compute_dependencies"] and "kernel fused_sin" in parts["schedule"]
    assert "before: " in parts["loop_ordering"] and "after: " in parts["loop_ordering"]
    assert "mode=" in parts["loop_tiling"] and "grain=" in parts["loop_tiling"]


@calls("logs", "output_code", "kernel_code", "inductor_metrics")
def test_programs_are_shown_and_counted() -> None:
    """The program, the kernels' sources, how many there are."""
    text = shown("output_code,kernel_code,inductor_metrics", weighted, arguments())
    metrics = text.split("[flambeau inductor_metrics]")[1].splitlines()[0]
    assert "kernels=" in metrics and "bytes_moved=" in metrics and "program=forward" in metrics
    assert "[flambeau output_code]" in text and "[flambeau kernel_code]" in text


@calls("logs", "cudagraphs", "cudagraph_static_inputs")
def test_cuda_graphs_say_what_stays() -> None:
    """Parameters stay where they are; on a CPU nothing is recorded, with the reason."""
    module = torch.nn.Linear(4, 4)
    stream = io.StringIO()
    log.configure(log.parse("cudagraphs,cudagraph_static_inputs"), stream)
    flambeau.compile(module, options={**COMPILED_ANEW, "triton.cudagraphs": True})(torch.randn(2, 4))
    first = stream.getvalue().split("[flambeau cudagraph_static_inputs]")[1].splitlines()[0]
    assert "weight" in first.partition("copied=")[0] and "input" in first.partition("copied=")[2]
    assert "[flambeau cudagraphs]" in stream.getvalue()


@calls("logs", "caching", "dynamic")
def test_caches_and_symbols() -> None:
    """A miss with its reason; symbols with their ranges."""
    stream = io.StringIO()
    log.configure(log.parse("caching"), stream)
    flambeau.compile(lambda x: x.sin() + 3.25)(torch.randn(7))
    assert "[flambeau caching]" in stream.getvalue()
    assert "[flambeau dynamic]" in shown("dynamic", weighted, arguments(), dynamic=True)


@calls("logs", "autotuning", "benchmarking")
def test_measurements_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each measured program with its seconds, and the way that was chosen."""
    from flambeau_inductor.autotune import questions
    from flambeau_runtime import timing

    class Asked:
        name, ways = "mm of 4", ("a", "b")

    stream = io.StringIO()
    log.configure(log.parse("autotuning,benchmarking"), stream)
    monkeypatch.setattr(questions, "time_ways", lambda asked, progress: [{"a": 2.0, "b": 1.0}])
    chosen = questions._measured([Asked()], questions.Config(coordinate_descent_tuning=False), None)
    assert chosen == ["b"] and "chosen=b" in stream.getvalue() and "'a'" in stream.getvalue()
    artifacts: list[Any] = []
    compiled = flambeau.explain(weighted)(*arguments())
    artifacts += [program.artifact for program in compiled.programs]
    monkeypatch.setattr(timing, "_ask", lambda given, device: [0.25 for _ in given])
    assert timing._survived(artifacts, torch.device("cpu")) == [0.25] * len(artifacts)
    assert "[flambeau benchmarking] measured" in stream.getvalue() and "seconds=0.25" in stream.getvalue()


@calls("logs", "perf_hints")
def test_missed_optimisations() -> None:
    """A loop that breaks, a graph that cannot be recorded, operands that tensor cores cannot read, launches of little work."""

    def looped(x: Tensor) -> Tensor:
        for _ in range(3):
            x = x + 1
            flambeau.compiler.graph_break()
        return x

    text = shown("perf_hints", looped, (torch.ones(2),))
    assert "graph_break_in_a_loop" in text and "move what breaks out of the loop" in text
    stream = io.StringIO()
    log.configure(log.parse("perf_hints"), stream)
    flambeau.compile(weighted, options={**COMPILED_ANEW, "triton.cudagraphs": True})(*arguments())
    assert "no_cuda_graph" in stream.getvalue() and "reason=" in stream.getvalue()


@calls("logs", "dynamo", "aot", "inductor", "cache", "async_compile")
def test_aliases_are_levels_of_our_modules() -> None:
    """Plus shows everything of one, minus errors alone; a module is named as it is imported."""
    text = shown("+dynamo", weighted, arguments())
    assert "[flambeau guards]" in text and "aot_graph" not in text and "[flambeau timings] stage_done" not in text
    assert "[flambeau timings] stage_done" in shown("+inductor", weighted, arguments(), dynamic=False)
    assert "joint_graph" in shown("+aot", weighted, arguments())
    assert "[flambeau timings] compiled a library" in shown(
        "+async_compile", lambda x: x.cos() * 2.125, (torch.randn(9),)
    )
    stream = io.StringIO()
    log.configure(log.parse("+cache"), stream)
    flambeau.compile(lambda x: x.cos() * 5.125)(torch.randn(9))
    assert "cache miss" in stream.getvalue() and "stage" not in stream.getvalue()
    only = shown("+flambeau_inductor.lowering", weighted, arguments())
    assert "lowered" in only and "stage_done" not in only
    assert log.parse("-inductor").modules == {"flambeau_inductor": logging.ERROR}
    with pytest.raises(UnknownName, match="flambeau_inductor"):
        log.parse("flambeau_inductor.nothing")


@calls(
    "logs", "autograd", "c10d", "ddp", "distributed", "dtensor", "export", "fake_tensor", "fsdp", "native_dsl", "onnx", "pp", "torch"
)  # fmt: skip
@pytest.mark.parametrize(
    "alias",
    [
        "autograd",
        "c10d",
        "ddp",
        "distributed",
        "dtensor",
        "export",
        "fake_tensor",
        "fsdp",
        "native_dsl",
        "onnx",
        "pp",
        "torch",
    ],
)
def test_aliases_of_torch_set_its_own_loggers(alias: str) -> None:
    """The same loggers as under TORCH_LOGS; they are as before when logs are chosen anew."""
    from torch._logging._internal import log_registry

    names = log_registry.log_alias_to_log_qnames.get(alias)
    if names is None:
        pytest.skip(f"this torch has no logs named {alias}")
    before = {name: logging.getLogger(name).level for name in names}
    set_logs(f"+{alias}")
    assert {logging.getLogger(name).level for name in names} == {logging.DEBUG}
    set_logs()
    assert {name: logging.getLogger(name).level for name in names} == before


def test_set_logs_takes_names_and_levels() -> None:
    """As `torch._logging.set_logs` does, and as a list of names."""
    set_logs(recompiles=True, dynamo=logging.DEBUG, guards=False)
    settings = log.logger.settings
    assert settings.artifacts == {"recompiles"} and settings.modules == {"flambeau_capture": logging.DEBUG}
    set_logs("all", guards=False, modules={"flambeau_inductor.lowering": logging.INFO}, all=logging.ERROR)
    settings = log.logger.settings
    assert "guards" not in settings.artifacts and "graph_code" in settings.artifacts and settings.level == logging.ERROR
    assert settings.modules == {"flambeau_inductor.lowering": logging.INFO}
    with pytest.raises(InvalidOption, match="shown or not"):
        set_logs(recompiles=logging.DEBUG)
    with pytest.raises(InvalidOption, match="takes a level"):
        set_logs(dynamo=True)
    with pytest.raises(UnknownName):
        set_logs(recompile=True)


def configured(names: str, **variables: str) -> io.StringIO:
    """Logs in a stream, with the environment's variables for them."""
    stream = io.StringIO()
    log.configure(log.parse(names), stream, {f"FLAMBEAU_LOGS_{name}": text for name, text in variables.items()})
    return stream


@calls("logs", "LOGS_FORMAT")
def test_formats() -> None:
    """One JSON object a line; torch's short form; a format of `logging`."""
    stream = configured("graph_code", FORMAT="json")
    flambeau.compile(weighted, options=COMPILED_ANEW)(*arguments())
    (event,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert event["artifact"] == "graph_code" and event["event"] == "graph" and "matmul" in event["code"] and event["id"]
    stream = configured("graph_code", FORMAT="short")
    flambeau.compile(weighted, options=COMPILED_ANEW)(*arguments())
    assert stream.getvalue().startswith("DEBUG:flambeau.observe:graph")
    stream = configured("graph_code", FORMAT="%(filename)s|%(trace_id)s|%(artifact)s|%(message)s")
    flambeau.compile(weighted, options=COMPILED_ANEW)(*arguments())
    file, number, artifact, message = stream.getvalue().splitlines()[0].split("|")
    assert (file, artifact, message) == ("observe.py", "graph_code", "graph ") or message.startswith("graph")
    assert number.startswith("[") and number.endswith("/0]")
    for wrong in ("nothing", "%(nothing)s"):
        with pytest.raises(InvalidOption, match="is no format"):
            configured("", FORMAT=wrong)


@calls("logs", "LOGS_TRACE_ID_FILTER")
def test_events_have_the_id_of_their_compile() -> None:
    """`[frame/entry]`, in every stage of it; a filter shows one of them, or all of a frame."""
    compiled = flambeau.compile(weighted, options=COMPILED_ANEW, dynamic=False)
    stream = configured("guards,aot_graphs")
    compiled(*arguments())
    compiled(*arguments(5))
    heads = [line for line in stream.getvalue().splitlines() if line.startswith("[flambeau")]
    numbers = list(dict.fromkeys(head.rpartition("id=")[2] for head in heads))
    frame = numbers[0].strip("[]").partition("/")[0]
    assert numbers == [f"[{frame}/0]", f"[{frame}/1]"]
    for wanted, found in (
        (f"[{frame}/1]", {f"[{frame}/1]"}),
        (frame, {f"[{frame}/0]", f"[{frame}/1]"}),
        ("9999/0", set()),
    ):
        again = flambeau.compile(weighted, options=COMPILED_ANEW, dynamic=False)
        stream = configured("guards", TRACE_ID_FILTER=wanted)
        again(*arguments())
        again(*arguments(5))
        lines = [line for line in stream.getvalue().splitlines() if line.startswith("[flambeau")]
        assert {line.rpartition("id=")[2] for line in lines} == found


PROGRAM = """
import logging, torch, flambeau
before = logging.root.handlers[:], logging.root.level
flambeau.compile(lambda x: x.sin() + 1)(torch.randn(3))
assert (logging.root.handlers, logging.root.level) == before
"""


@calls("logs", "LOGS_OUT")
def test_events_go_to_a_file_too(tmp_path: Path) -> None:
    """The file that the environment names, in a folder that is made; standard error as well; the application's logging stays."""
    path = tmp_path / "made" / "out.txt"
    done = scripts.run(PROGRAM, tmp_path, FLAMBEAU_LOGS="graph_code", FLAMBEAU_LOGS_OUT=path)
    assert done.status == 0, done.stderr
    assert "[flambeau graph_code]" in done.stderr and path.read_text() in done.stderr and path.read_text()
