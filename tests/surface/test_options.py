"""Options as torch.compile's documentation has them, each seen in what is compiled."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from attrs import evolve
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau
import flambeau_inductor
import flambeau_runtime
from flambeau import stack
from flambeau.errors import InvalidOption, NotFinite, NotRecorded
from flambeau.options import resolve
from flambeau.records import ProgramRecord
from flambeau.stages import resolve_stages
from flambeau_inductor import pipeline
from flambeau_inductor.autotune import asked, choice, descent, questions
from flambeau_runtime import BuildError, Store, build_libraries, graphs
from flambeau_runtime.artifact import Alloc, Call, Launch
from tests.comparison import assert_same
from tests.cudagraph.test_without_gpu import fake_recorder

from .rows import calls


def program(function: Callable[..., Any], *inputs: Any, **options: Any) -> ProgramRecord:
    """The forward that is compiled under these options, after its result was compared with eager's."""
    explanation = flambeau.explain(function, options=options)(*inputs)
    assert_same(explanation.result, function(*inputs), rtol=1e-4, atol=1e-5)
    return explanation.programs[0]


def count(record: ProgramRecord, kind: type) -> int:
    return sum(isinstance(instruction, kind) for instruction in record.artifact.program.instructions)


def on_cuda(function: Callable[..., Any], *inputs: Tensor, **options: Any) -> Any:
    """The artifact for a GPU, compiled on fakes: no GPU is needed."""
    table = {op: rule for op, rule in flambeau_inductor.decompositions().items() if rule is not None}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda") for t in inputs]
    with mode:
        gm = make_fx(function, decomposition_table=table, _allow_non_fake_inputs=True)(*fakes)
    return flambeau_inductor.compile_graph(gm, fakes, resolve_stages(resolve(None, options)).inductor)


def entries(artifact: Any) -> list[str]:
    return [kernel.entry for kernel in artifact.kernels]


def meta(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(*sizes, dtype=dtype, device="meta")


# ---- fusion and passes --------------------------------------------------------------------------------------------------------------


@calls("options", "max_fusion_size")
def test_loops_of_a_kernel() -> None:
    def six(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.sin(x + k) for k in range(6))

    assert [program(six, torch.randn(8, 9), max_fusion_size=size).kernels for size in (64, 3)] == [1, 2]


@calls("options", "allow_buffer_reuse", "inplace_buffers")
def test_memory() -> None:
    def chain(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(4):
            x = torch.relu(x @ w) * 2 + 1
        return x

    def allocations(reuse: bool, in_place: bool) -> int:
        given = torch.randn(100, 100), torch.randn(100, 100) / 10
        return count(program(chain, *given, allow_buffer_reuse=reuse, inplace_buffers=in_place), Alloc)

    assert allocations(False, False) > max(allocations(True, False), allocations(False, True))


@calls("options", "realize_opcount_threshold")
def test_costly_values_are_stored() -> None:
    def shared(x: Tensor) -> Tensor:
        y = torch.sin(x) * 2 + torch.cos(x) * 3
        return y.sum(0) + y.sum(1)

    x = torch.randn(64, 64)
    assert program(shared, x, realize_opcount_threshold=1).artifact.text() != program(shared, x).artifact.text()


@calls("options", "realize_reads_threshold")
def test_values_of_many_operands_are_stored() -> None:
    def spread(*xs: Tensor) -> Tensor:
        return torch.var(sum(xs[1:], xs[0]), -1)

    xs = [torch.randn(64, 64) for _ in range(6)]
    stored, again = (program(spread, *xs, realize_reads_threshold=value).artifact.program for value in (1, 99))
    assert stored != again


@calls("options", "split_reductions")
def test_reductions_are_split() -> None:
    def total(x: Tensor) -> Tensor:
        return x.sum()

    x = meta(1 << 22, dtype=torch.float32)
    assert [len(on_cuda(total, x, split_reductions=split).kernels) for split in (True, False)] == [2, 1]


@calls("options", "combo_kernels")
def test_small_kernels_are_launched_as_one() -> None:
    def two(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.sin(x), torch.cos(y)

    given = meta(64, dtype=torch.float32), meta(33, dtype=torch.float32)

    def launches(combined: bool) -> int:
        instructions = on_cuda(two, *given, combo_kernels=combined).program.instructions
        return sum(isinstance(instruction, Launch) for instruction in instructions)

    assert [launches(True), launches(False)] == [1, 2]


@calls("options", "loop_ordering_after_fusion")
def test_loops_are_ordered_by_memory() -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.sin(x.t()) + 1

    x = torch.randn(37, 53)
    ordered, plain = (program(turned, x, loop_ordering_after_fusion=value).artifact.text() for value in (True, False))
    assert ordered != plain


@calls("options", "pattern_matcher")
def test_calls_are_traded_for_others() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    given = [torch.randn(2, 4, 64, 64) for _ in range(3)]
    traded, plain = (program(attention, *given, pattern_matcher=value) for value in (True, False))
    assert sum(plain.library_calls.values()) > sum(traded.library_calls.values())


@calls("options", "batch_fusion")
def test_products_of_one_operand_are_joined() -> None:
    def three(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        return x @ a, x @ b, x @ c

    given = meta(512, 512), *(meta(512, 512) for _ in range(3))

    def products(joined: bool) -> int:
        instructions = on_cuda(three, *given, batch_fusion=joined).program.instructions
        return sum(isinstance(instruction, Call) for instruction in instructions)

    assert products(True) <= products(False)


@calls("options", "conv_1x1_as_mm")
def test_convolutions_of_points_are_products() -> None:
    model = nn.Conv2d(8, 16, 1).to(memory_format=torch.channels_last).eval()
    x = torch.randn(2, 8, 5, 5).to(memory_format=torch.channels_last)
    with torch.no_grad():
        found = program(model, x, conv_1x1_as_mm=True).library_calls
    assert not any("conv" in name for name in found), found


@calls("options", "layout_optimization", "force_layout_optimization")
def test_convolutions_are_channels_last() -> None:
    def convolved(x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(F.conv2d(x, w))

    given = torch.randn(2, 8, 9, 9), torch.randn(8, 8, 3, 3)
    forced = program(convolved, *given, force_layout_optimization=True).artifact.text()
    off = program(convolved, *given, force_layout_optimization=True, layout_optimization=False).artifact.text()
    assert forced != off


@calls("options", "joint_graph_constant_folding")
def test_ops_that_change_nothing_are_dropped() -> None:
    def copied(x: Tensor) -> Tensor:
        return torch.sin(x.clone())

    x = torch.randn(5)
    dropped, kept = (program(copied, x, joint_graph_constant_folding=value) for value in (True, False))
    assert [record.artifact.kernels[0].meta["origins"] for record in (dropped, kept)] == [
        ["sin_default"],
        ["clone_default", "sin_default"],
    ]


# ---- products -------------------------------------------------------------------------------------------------------------------------

EVEN = meta(4096, 768), meta(1024, 768)


def linear(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.t()


@calls("options", "max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
def test_measurements_are_asked_for() -> None:
    """What is measured is seen in `packages/inductor/tests/autotune`; here, that the option arrives."""
    for name in ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise"):
        assert asked.is_asked_to_measure(resolve_stages(resolve(None, {name: True})).inductor)
    assert not asked.is_asked_to_measure(resolve_stages(resolve(None, None)).inductor)


@pytest.mark.parametrize(("backends", "kernels"), [("ATEN", 0), ("TRITON", 1)])
@calls("options", "max_autotune_gemm_backends")
def test_who_may_compute_products(backends: str, kernels: int) -> None:
    artifact = on_cuda(linear, *EVEN, max_autotune=True, max_autotune_gemm_backends=backends)
    assert sum("gemm" in entry for entry in entries(artifact)) == kernels


@pytest.mark.parametrize(("backends", "who"), [("ATEN", "library"), ("TRITON", "generated"), ("aten,triton", "auto")])
@calls("options", "max_autotune_conv_backends")
def test_who_may_compute_convolutions(backends: str, who: str) -> None:
    stages = resolve_stages(resolve(None, {"max_autotune": True, "max_autotune_conv_backends": backends}))
    assert asked.who_computes(stages.inductor, is_convolution=True) == who
    with pytest.raises(InvalidOption, match="ATEN, TRITON and CPP"):
        resolve(None, {"max_autotune_conv_backends": "CUTLASS"})


@calls("options", "max_autotune_gemm_search_space")
def test_how_many_tiles_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_of: list[int] = []

    def answers(given: Any, config: Any, **how: Any) -> list[Any]:
        asked_of.extend(len(question.ways) for question in given)
        return [questions.UNKNOWN for _ in given]

    monkeypatch.setattr(choice, "may_measure", lambda device, wanted: wanted)
    monkeypatch.setattr(choice, "answers", answers)
    monkeypatch.setattr(pipeline, "start_measuring", lambda inputs, config: None)
    for space in ("DEFAULT", "EXHAUSTIVE"):
        on_cuda(linear, *EVEN, max_autotune_gemm=True, max_autotune_gemm_search_space=space)
    assert len(set(asked_of)) == 2 and asked_of[-1] > asked_of[0] == 8


@calls("options", "prologue_fusion")
def test_operands_are_computed_in_the_product() -> None:
    def converted(x: Tensor, w: Tensor) -> Tensor:
        return x @ w.to(torch.bfloat16).t()

    given = meta(1, 4096), meta(4096, 4096, dtype=torch.int8)
    assert [len(on_cuda(converted, *given, prologue_fusion=value).kernels) for value in (True, False)] == [1, 2]


@calls("options", "coordinate_descent_search_radius", "coordinate_descent_check_all_directions")
def test_how_far_the_descent_looks() -> None:
    from flambeau_inductor.ir.kernel import GemmTile

    start = GemmTile(64, 64, 64, 4, 3)

    def around(way: GemmTile) -> list[GemmTile]:
        return [
            GemmTile(way.rows * 2, way.columns, way.terms, 4, 3),
            GemmTile(way.rows, way.columns * 2, way.terms, 4, 3),
        ]

    def places(**how: Any) -> set[tuple[int, int]]:
        return {(way.rows, way.columns) for way in descent.around(around, start, how.pop("radius", 1), **how)}

    assert places() == {(128, 64), (64, 128)}
    assert places(radius=2) == {(128, 64), (64, 128), (256, 64), (64, 256)}
    assert (128, 128) in places(two_knobs=True)


@calls("options", "epilogue_fusion")
def test_the_library_does_what_follows() -> None:
    def activated(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.relu(F.linear(x, w, b))

    given = meta(512, 256), meta(128, 256), meta(128)
    on, off = (on_cuda(activated, *given, epilogue_fusion=value).text() for value in (True, False))
    assert "_addmm_activation" in on and "_addmm_activation" not in off


@calls("options", "coordinate_descent_tuning")
def test_the_best_is_looked_around(monkeypatch: pytest.MonkeyPatch) -> None:
    around: list[Any] = []
    monkeypatch.setattr(questions, "descend", lambda *given, **how: around.append(how))
    monkeypatch.setattr(questions, "time_ways", lambda given, progress: [{1: 1.0} for _ in given])
    question = questions.Question("q", "q", torch.device("cpu"), (1,), lambda way: None)
    for options in ({}, {"coordinate_descent_tuning": True, "coordinate_descent_search_radius": 3}):
        config = resolve_stages(resolve(None, options)).inductor
        with questions.Progress("kernels", 1) as progress:
            assert questions._measured([question], config, progress) == [1]
    assert around == [{"radius": 3, "all_directions": False}]


# ---- kernels ----------------------------------------------------------------------------------------------------------------------------


@calls("options", "triton.persistent_reductions")
def test_rows_are_kept_or_not() -> None:
    def softmax(x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    x = meta(4096, 512, dtype=torch.float32)
    kept, looped = (entries(on_cuda(softmax, x, **{"triton.persistent_reductions": on})) for on in (True, False))
    assert "_per_" in kept[0] and "_red_" in looped[0]


@calls("options", "triton.descriptive_names")
def test_names_of_kernels() -> None:
    x = meta(512, dtype=torch.float32)
    told, mute = (entries(on_cuda(torch.sin, x, **{"triton.descriptive_names": on})) for on in ("original_aten", False))
    assert "fused_sin" in told[0] and "sin" not in mute[0].replace("poi", "")


@calls("options", "cpp.min_chunk_size")
def test_rounds_of_a_thread() -> None:
    x = torch.randn(1000, 100)
    assert "grain 77" in program(torch.sin, x, **{"cpp.min_chunk_size": 77}).artifact.text()


@calls("options", "cpu_backend")
def test_language_of_cpu_kernels() -> None:
    found = flambeau.explain(torch.sin, options={"cpu_backend": "cpp"})(torch.randn(3)).programs[0].artifact
    assert [library.language for library in found.libraries] == ["cpp"]
    with pytest.raises(flambeau.errors.UnknownName, match="cpp, triton"):
        resolve(None, {"cpu_backend": "halide"})


# ---- numbers ----------------------------------------------------------------------------------------------------------------------------


@calls("options", "emulate_precision_casts")
def test_rounding_as_eager() -> None:
    def several(x: Tensor) -> Tensor:
        return ((x * 1.1) * 1.3) * 1.7

    x = torch.randn(1000, dtype=torch.bfloat16)
    true, fast = (flambeau.compile(several, options={"emulate_precision_casts": on})(x) for on in (True, False))
    assert torch.equal(true, several(x)) and not torch.equal(fast, several(x))


@calls("options", "fallback_random")
def test_random_numbers() -> None:
    torch.manual_seed(3)
    ours = flambeau.compile(torch.rand_like, options={"fallback_random": True})(torch.ones(100))
    torch.manual_seed(3)
    assert torch.equal(ours, torch.rand_like(torch.ones(100)))


@calls("options", "nan_asserts")
def test_results_that_are_no_numbers() -> None:
    """Also of the backward; numbers go through."""
    compiled = flambeau.compile(torch.log, options={"nan_asserts": True})
    assert_same(compiled(torch.ones(3)), torch.zeros(3))
    with pytest.raises(NotFinite, match="forward"):
        compiled(torch.zeros(3))
    root = flambeau.compile(lambda x: torch.sqrt(x).sum(), options={"nan_asserts": True})
    with pytest.raises(NotFinite, match="backward"):
        root(torch.zeros(3, requires_grad=True)).backward()


# ---- passes of the user -----------------------------------------------------------------------------------------------------------------


def as_cosine(graph: fx.Graph) -> None:
    """Put the cosine in the place of the sine."""
    others = {torch.sin: torch.cos, torch.ops.aten.sin.default: torch.ops.aten.cos.default}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in others:
            with graph.inserting_after(node):
                other = graph.call_function(others[node.target], node.args)
            node.replace_all_uses_with(other)
            graph.erase_node(node)


class Cosine:
    """As torch.compile's `CustomGraphPass`."""

    def __init__(self, version: str) -> None:
        self.version = version

    def __call__(self, graph: fx.Graph) -> None:
        as_cosine(graph)

    def uuid(self) -> str:
        return self.version


PASSES = (
    "pre_grad_custom_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("with_grad", [False, True])
@calls("options", *PASSES)
def test_a_pass_edits_its_graph(name: str, with_grad: bool) -> None:
    """In the joint graph after autograd: the gradient is the sine's, unless the pass came before."""

    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 2

    x = torch.randn(5, requires_grad=with_grad)
    result = flambeau.compile(function, options={name: as_cosine})(x)
    assert_same(result.detach(), torch.cos(x).detach() * 2)
    if with_grad:
        result.sum().backward()
        assert_same(x.grad, (-torch.sin(x) if name.startswith("pre_grad") else torch.cos(x)).detach() * 2)


@pytest.mark.parametrize("name", PASSES[1:])
def test_a_pass_is_in_the_key_by_its_uuid(name: str) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.sin(x) * 41

    def is_cached(run: Any) -> bool:
        return bool(flambeau.explain(function, options={name: run})(torch.ones(3)).programs[0].cached)

    assert [is_cached(as_cosine), is_cached(as_cosine)] == [False, False]
    assert [is_cached(Cosine(f"{name} 1")), is_cached(Cosine(f"{name} 1")), is_cached(Cosine(f"{name} 2"))] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_that_fails_is_told(name: str) -> None:
    def fails(graph: fx.Graph) -> None:
        raise KeyError("of the pass")

    with pytest.raises(InvalidOption, match=f"{name} failed: KeyError"):
        flambeau.compile(torch.sin, options={name: fails})(torch.ones(3))


# ---- CUDA graphs ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Regions with CUDA graphs record CPU programs, by running them again."""
    found: list[Any] = []
    load = graphs.load_graphed

    def load_graphed(artifact: Any, *, report: Any, **options: Any) -> Any:
        def tell(decision: Any) -> None:
            found.append(decision)
            report(decision)

        return load(artifact, report=tell, recorder=fake_recorder(), **options)

    monkeypatch.setattr(graphs, "load_graphed", load_graphed)
    yield found


def two_layers(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w) @ w


W = torch.randn(100, 100)


def run_graphed(sizes: list[int], **options: Any) -> Any:
    compiled = flambeau.compile(two_layers, options={"triton.cudagraphs": True, **options})
    for size in sizes:
        x = torch.randn(size, 100)
        flambeau.compiler.mark_dynamic(x, 0)
        compiled(x, W)


def kinds(decisions: list[Any]) -> list[str]:
    return [decision.kind for decision in decisions]


@calls("options", "triton.cudagraphs")
def test_programs_are_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64])
    assert kinds(decisions) == ["recorded"]


@calls("options", "triton.skip_cudagraph_warmup")
def test_the_first_call_is_recorded(decisions: list[Any]) -> None:
    run_graphed([64])
    assert kinds(decisions) == []
    run_graphed([64], **{"triton.skip_cudagraph_warmup": True})
    assert kinds(decisions) == ["recorded"]


@calls("options", "triton.cudagraph_capture_sizes")
def test_sizes_that_are_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64, 80, 80], **{"triton.cudagraph_capture_sizes": (64,)})
    assert kinds(decisions) == ["recorded", "plain"]


@calls("options", "triton.cudagraph_dynamic_shape_warn_limit")
def test_a_warning_of_many_sizes(decisions: list[Any]) -> None:
    with pytest.warns(RuntimeWarning, match="more than 2 different sizes") as told:
        run_graphed([n for n in range(60, 65) for _ in range(2)], **{"triton.cudagraph_dynamic_shape_warn_limit": 2})
    assert len(told) == 1 and kinds(decisions) == ["recorded"] * 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_graphed([n for n in range(60, 65) for _ in range(2)])


@calls(
    "options",
    "triton.cudagraph_skip_dynamic_graphs",
    "triton.cudagraph_support_input_mutation",
    "triton.cudagraph_or_error",
)
def test_programs_that_are_not_recorded(decisions: list[Any]) -> None:
    run_graphed([64, 64], **{"triton.cudagraph_skip_dynamic_graphs": True})

    def writes(x: Tensor, w: Tensor) -> Tensor:
        x.add_(torch.tanh(x @ w))
        return x @ w

    given = torch.randn(64, 100), W
    for options in ({}, {"triton.cudagraph_support_input_mutation": False}):
        compiled = flambeau.compile(writes, options={"triton.cudagraphs": True, **options})
        for _ in range(2):
            compiled(*given)
    assert kinds(decisions) == ["recorded"]
    strict = {"triton.cudagraphs": True, "triton.cudagraph_or_error": True}
    refused = flambeau.compile(
        writes, fullgraph=True, options={**strict, "triton.cudagraph_support_input_mutation": False}
    )
    with pytest.raises(NotRecorded, match="writes to an input"):
        refused(*given)


@calls("options", "graph_partition")
def test_all_or_nothing(decisions: list[Any]) -> None:
    def stops(x: Tensor, w: Tensor) -> Tensor:
        x = two_layers(torch.tanh(two_layers(x, w)), w)
        return two_layers(torch.tanh(two_layers(x * x.sum().item(), w)), w)

    for partition in (True, False):
        compiled = flambeau.compile(stops, options={"triton.cudagraphs": True, "graph_partition": partition})
        for _ in range(3):
            compiled(torch.randn(64, 100), W)
        told = kinds(decisions)
        assert ("recorded" in told) is partition, decisions
        decisions.clear()


# ---- caches, compilers, measurement -------------------------------------------------------------------------------------------------------


@calls("options", "fx_graph_cache", "force_disable_caches")
def test_graphs_are_kept() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cos(x) * 43

    def is_cached(**options: Any) -> bool:
        return bool(program(function, torch.ones(3), **options).cached)

    assert [is_cached(force_disable_caches=True), is_cached(fx_graph_cache=False), is_cached()] == [False] * 3
    assert [is_cached(), is_cached(fx_graph_cache=False)] == [True, False]


@calls("options", "autotune_local_cache", "deterministic")
def test_what_was_measured_counts_or_not() -> None:
    assert resolve_stages(resolve(None, None)).inductor.autotune_local_cache
    for option in ({"autotune_local_cache": False}, {"deterministic": True}, {"force_disable_caches": True}):
        config = resolve_stages(resolve(None, option)).inductor
        assert not config.autotune_local_cache and not asked.may_look_up(config)


@calls("options", "precompilation_timeout_seconds")
def test_a_compiler_that_never_ends(tmp_path: Path) -> None:
    """It is ended."""
    slow = tmp_path / "slow++"
    slow.write_text('#!/bin/sh\ncase "$*" in *--version*) exec g++ "$@";; esac\nexec sleep 45\n')
    slow.chmod(0o755)
    config = resolve_stages(resolve(None, {"precompilation_timeout_seconds": 1})).runtime
    artifact = program(torch.sin, torch.ones(3)).artifact
    fresh = evolve(artifact, libraries=tuple(evolve(library, binary=None) for library in artifact.libraries))
    begin = time.monotonic()
    with pytest.raises(BuildError, match="longer than 1 s"):
        build_libraries(fresh, store=Store(None), config=evolve(config, cxx=str(slow)))
    assert time.monotonic() - begin < 40


@calls("options", "compile_threads")
def test_compilers_at_once() -> None:
    """One for both halves, or two for each."""
    stages = [resolve_stages(resolve(None, {"compile_threads": count})) for count in (1, 4)]
    found = [stack._compilers(one, 2) for one in stages]
    assert [(workers, config.jobs()) for workers, config in found] == [(1, 1), (2, 2)]


@calls("options", "cpp.threads")
def test_threads_of_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    load = flambeau_runtime.load

    def loaded(artifact: Any, **how: Any) -> Any:
        given.append(how["threads"])
        return load(artifact, **how)

    monkeypatch.setattr(flambeau_runtime, "load", loaded)
    for threads in (-1, 3):
        flambeau.compile(torch.sin, options={"cpp.threads": threads})(torch.ones(3))
    assert given == [None, 3]


@calls("options", "freezing")
def test_parameters_are_folded() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).eval()
    x = torch.randn(2, 3, 9, 9)
    with torch.no_grad():
        programs = {value: flambeau.explain(model, options={"freezing": value})(x).programs for value in (True, False)}
        assert [program.kind for program in programs[True]] == ["forward", "folding"]
        assert [program.kind for program in programs[False]] == ["forward"]
        compiled = flambeau.compile(model, options={"freezing": True})
        assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight.mul_(2)
        assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@calls("options", "guard_filter_fn")
def test_guards_are_chosen() -> None:
    compiled = flambeau.compile(
        lambda x, n: x + n, options={"guard_filter_fn": lambda entries: [False for _ in entries]}
    )
    x = torch.ones(3)
    assert [compiled(x, 1).tolist(), compiled(x, 2).tolist()] == [[2, 2, 2], [2, 2, 2]]


# ---- modes ------------------------------------------------------------------------------------------------------------------------------


@calls("modes", "default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")
def test_what_modes_set() -> None:
    assert resolve("default", None)["triton.cudagraphs"] is False
    for mode, graphed, measured in (
        ("reduce-overhead", True, False),
        ("max-autotune-no-cudagraphs", False, True),
        ("max-autotune", True, True),
    ):
        options = resolve(mode, None)
        assert options["triton.cudagraphs"] is graphed
        assert options["max_autotune"] is options["coordinate_descent_tuning"] is measured
        compiled = flambeau.compile(torch.sin, mode=mode)
        assert_same(compiled(torch.ones(3)), torch.sin(torch.ones(3)))


@calls("modes", "lite")
def test_a_minimal_compile() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.sin(x) + torch.cos(x)

    found = flambeau.explain(function, mode="lite")(torch.ones(3)).programs[0]
    assert found.kernels == 0 and sum(found.library_calls.values()) == 3
