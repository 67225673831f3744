"""Each option of `flambeau.compile` does what its help says: seen in programs, in what is kept and in what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import flambeau
import flambeau_inductor
from flambeau import stack
from flambeau.compile import compile_recorded
from flambeau.options import Options, resolve
from flambeau.records import ProgramRecord, Recorder
from flambeau.stages import resolve_stages
from flambeau_capture import CaptureError, InternalError
from flambeau_runtime import default_store
from flambeau_runtime.artifact import Alloc, Call, Hold
from tests.comparison import assert_same


def chain(x: Tensor, w: Tensor) -> Tensor:
    """Products with pointwise work between: every intermediate has one shape."""
    for _ in range(4):
        x = torch.relu(x @ w) * 2 + 1
    return x


#: So large that the library multiplies them.
SQUARES = (torch.randn(100, 100), torch.randn(100, 100) / 10)


def program(function: Callable[..., Any], *args: Any, **options: Any) -> ProgramRecord:
    """The forward that is compiled under these options, after its result was compared with eager's."""
    explanation = flambeau.explain(function, measure=False, options=options)(*args)
    assert_same(explanation.result, function(*args))
    return explanation.programs[0]


def count(record: ProgramRecord, kind: type) -> int:
    """Instructions of a kind."""
    return sum(isinstance(instruction, kind) for instruction in record.artifact.program.instructions)


# ---- what is generated ------------------------------------------------------------------------------------------------------------


def test_memory_options_are_two() -> None:
    """Memory handed on to a later result, and results written over what their kernel reads, spare allocations each."""

    def allocations(reuse: bool, in_place: bool) -> int:
        return count(program(chain, *SQUARES, allow_buffer_reuse=reuse, inplace_buffers=in_place), Alloc)

    assert allocations(False, False) == 4
    assert 0 < allocations(True, False) < 4
    assert allocations(False, True) == 0 == allocations(True, True)


def test_fusion_stops_at_the_size_that_was_asked_for() -> None:
    """Six loops over the same points."""

    def six(x: Tensor) -> tuple[Tensor, ...]:
        return tuple(torch.sin(x + k) for k in range(6))

    kernels = [program(six, torch.randn(8, 9), max_fusion_size=size).kernels for size in (64, 3, 1)]
    assert kernels == [1, 2, 6]


def test_epilogues_go_to_the_library_where_they_may() -> None:
    """For a GPU; compiling for one needs none."""
    with FakeTensorMode():
        inputs = tuple(torch.empty(shape, device="cuda") for shape in ((64, 64), (64, 64), (64,)))
    gm = make_fx(lambda x, w, b: torch.relu(torch.addmm(b, x, w)))(*inputs)

    def calls(fuse: bool) -> list[str]:
        options = resolve_stages(Options({"epilogue_fusion": fuse})).inductor
        artifact = flambeau_inductor.compile_graph(gm, inputs, options)
        return [i.op for i in artifact.program.instructions if isinstance(i, Call)]

    assert calls(True) == ["aten::_addmm_activation"]
    assert calls(False) == ["aten::addmm"]


def test_library_results_are_held_to_their_prediction() -> None:
    """One check for each product whose result a kernel reads; none without the option."""
    assert count(program(chain, *SQUARES), Hold) == 4
    assert count(program(chain, *SQUARES, size_asserts=False), Hold) == 0


def test_a_minimal_compile_has_no_kernels() -> None:
    """Library calls for everything, with the same results."""
    record = program(chain, *SQUARES, fallback_by_default=True)
    assert record.kernels == 0 and record.library_calls["aten::relu"] == 4
    assert program(chain, *SQUARES).kernels == 4


@pytest.mark.parametrize("asked", [True, False])
def test_numbers_equal_eagers_whatever_is_asked(asked: bool) -> None:
    """`fallback_random` and `deterministic` are permissions; what they permit always holds."""

    def noisy(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5) + torch.rand_like(x) * 2

    compiled = flambeau.compile(noisy, options={"fallback_random": asked, "deterministic": asked})
    x = torch.randn(64)
    for _ in range(3):
        torch.manual_seed(7)
        wanted = noisy(x)
        torch.manual_seed(7)
        assert_same(compiled(x), wanted)


# ---- how it is compiled and run ---------------------------------------------------------------------------------------------------


def test_compile_threads_bound_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One: forward and backward are built one after the other. Two: both at once."""
    real = stack.runtime.build_libraries

    def both_at_once(allowed: int) -> list[int]:
        meeting = threading.Barrier(2)
        jobs: list[int] = []

        def build(artifact: Any, **how: Any) -> Any:
            jobs.append(how["config"].jobs())
            if allowed == 2:
                meeting.wait(timeout=60)  # breaks unless the other one is being built
            else:
                assert busy.acquire(blocking=False)
            try:
                return real(artifact, **how)
            finally:
                if allowed != 2:
                    busy.release()

        busy = threading.Lock()
        monkeypatch.setattr(stack.runtime, "build_libraries", build)
        w = torch.randn(5, 5, requires_grad=True)
        options = {"compile_threads": allowed, "force_disable_caches": True}
        flambeau.compile(lambda x, w: torch.tanh(x * w).sum(), options=options)(torch.randn(5, 5), w).backward()
        return jobs

    assert both_at_once(1) == [1, 1]
    assert both_at_once(2) == [1, 1]


_COUNT_THREADS = """
import os, sys, torch, flambeau
torch.set_num_threads(4)
f = flambeau.compile(lambda x: torch.sin(x) * 2, dynamic=True, options={"cpp.threads": int(sys.argv[1])})
f(torch.ones(8))
big = torch.empty(1 << 22)
before = len(os.listdir("/proc/self/task"))
f(big)
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="counts threads as Linux shows them")
@pytest.mark.parametrize("threads, started", [(-1, 3), (1, 0)])
def test_threads_of_a_kernel(threads: int, started: int) -> None:
    """A large tensor wakes the threads of torch's pool, unless the kernel may use one only."""
    run = subprocess.run(
        [sys.executable, "-c", _COUNT_THREADS, str(threads)], capture_output=True, text=True, timeout=120, check=True
    )
    assert int(run.stdout) == started


@pytest.mark.parametrize("executor, kind", [("native", "Executor"), ("python", "PythonExecutor")])
def test_the_executor_is_chosen(executor: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which class runs the program."""
    real = stack.runtime.load
    made: list[str] = []

    def load(*args: Any, **how: Any) -> Any:
        made.append(type(loaded := real(*args, **how)).__name__)
        return loaded

    monkeypatch.setattr(stack.runtime, "load", load)
    program(chain, *SQUARES, executor=executor)
    assert set(made) == {kind}


# ---- what is kept -----------------------------------------------------------------------------------------------------------------


def kept(kind: str) -> int:
    """Entries of a kind on disk."""
    folder = default_store().folder
    assert folder is not None
    return sum(path.is_file() for path in folder.glob(f"{kind}/**/*")) if folder.exists() else 0


@pytest.mark.parametrize(
    "options, graphs, kernels",
    [({}, True, True), ({"fx_graph_cache": False}, False, True), ({"force_disable_caches": True}, False, False)],
)
def test_caches_keep_what_they_may(
    options: dict[str, Any], graphs: bool, kernels: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second region finds the graph, or only the kernels, or nothing."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    assert not program(chain, *SQUARES, **options).cached
    assert (kept("graph") > 0) is graphs
    assert (kept("kernel") > 0) is kernels
    assert program(chain, *SQUARES, **options).cached is graphs


def test_disabled_caches_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where another region has left the very graph."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    program(chain, *SQUARES)
    assert not program(chain, *SQUARES, force_disable_caches=True).cached
    assert not program(chain, *SQUARES, fx_graph_cache=False).cached
    assert program(chain, *SQUARES).cached


def test_less_memory_for_the_backward() -> None:
    """The bytes that the forward saves fall with the budget; the gradient stays."""

    def run(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(x @ w)
        return x.exp().sum()

    def saved(budget: float) -> tuple[int, Tensor]:
        x, w = torch.ones(64, 8) / 8, (torch.ones(8, 8) / 8).requires_grad_()
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel() if tensor.untyped_storage().data_ptr() not in given else 0)
            return tensor

        given = {x.untyped_storage().data_ptr(), w.untyped_storage().data_ptr()}
        compiled = flambeau.compile(run, options={"activation_memory_budget": budget})
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            result = compiled(x, w)
        result.backward()
        assert w.grad is not None
        return sum(sizes), w.grad

    (full, gradient), (less, same) = saved(1.0), saved(0.0)
    assert less < full
    torch.testing.assert_close(gradient, same)


# ---- entries and failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.falls_back("the recompile limit was reached")
def test_the_limit_of_entries() -> None:
    """Two sizes are compiled, further ones run in eager."""
    recorder = Recorder()
    compiled = compile_recorded(
        lambda x: x * 2, recorder, backend="eager", dynamic=False, options={"recompile_limit": 2}
    )
    for size in range(2, 7):
        assert_same(compiled(torch.ones(size)), torch.ones(size) * 2)
    assert len(recorder.graphs) == 2


@pytest.mark.falls_back("the backend answered with the graph as it is")
def test_faults_of_ours_are_suppressed_or_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that cannot be compiled runs in eager with one warning, or is an error."""
    monkeypatch.delenv("FLAMBEAU_SUPPRESS_ERRORS")

    def fault(*args: Any) -> Any:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(stack, "_compile_both", fault)
    quiet = flambeau.compile(chain, options={"force_disable_caches": True})
    with pytest.warns(RuntimeWarning, match="a fault of ours"):
        assert_same(quiet(*SQUARES), chain(*SQUARES))
    loud = flambeau.compile(chain, options={"force_disable_caches": True, "suppress_errors": False})
    with pytest.raises(InternalError, match="a fault of ours"):
        loud(*SQUARES)


# ---- guards -----------------------------------------------------------------------------------------------------------------------


def drop_all(entries: list[Any]) -> list[bool]:
    return [False] * len(entries)


@pytest.mark.parametrize("backend", [None, "aot_eager", "eager", lambda gm, inputs: gm.forward])
def test_a_filter_drops_guards_with_any_backend(backend: Any) -> None:
    """A number that is no longer guarded stays what it was; backends are not told about the filter."""
    calls: list[int] = []

    def choose(entries: list[Any]) -> list[bool]:
        calls.append(len(entries))
        return [entry.name != "n" for entry in entries]

    compiled = flambeau.compile(lambda x, n: x * n, backend=backend, dynamic=False, options={"guard_filter_fn": choose})
    assert compiled(torch.ones(2), 3).tolist() == compiled(torch.ones(2), 5).tolist() == [3.0, 3.0]
    assert len(calls) == 1


FACTOR = 2.0


@pytest.mark.parametrize("name", ["skip_guard_on_globals_unsafe", "skip_all_guards_unsafe"])
def test_filters_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that ask whether something is global, or ask nothing, serve here as well."""
    compiled = flambeau.compile(lambda x: x * FACTOR, options={"guard_filter_fn": getattr(torch.compiler, name)})
    assert compiled(torch.ones(1)).item() == 2.0
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert compiled(torch.ones(1)).item() == 2.0
    assert flambeau.compile(lambda x: x * FACTOR)(torch.ones(1)).item() == 3.0


def test_filtered_regions_share_programs_but_no_entries() -> None:
    """The filter is not part of the key: the second region finds the first one's program and guards it by itself."""

    def f(x: Tensor, n: int) -> Tensor:
        return torch.sin(x) * n

    first, second = Recorder(), Recorder()
    loose = compile_recorded(f, first, dynamic=False, options={"guard_filter_fn": drop_all})
    strict = compile_recorded(f, second, dynamic=False)
    x = torch.ones(2)
    assert_same(loose(x, 3), f(x, 3))
    assert_same(strict(x, 3), f(x, 3))
    assert second.programs[0].cached and not first.guards and second.guards
    assert_same(loose(x, 4), f(x, 3))
    assert_same(strict(x, 4), f(x, 4))
    assert resolve(None, {"guard_filter_fn": drop_all}).cache_key() == Options().cache_key()


@pytest.mark.parametrize("choose, words", [(lambda entries: [True], "1 answers"), (lambda: None, "raised TypeError")])
def test_bad_filters_are_the_users_error(choose: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where our own faults are suppressed, and before anything is compiled."""
    monkeypatch.delenv("FLAMBEAU_SUPPRESS_ERRORS")
    monkeypatch.setattr(stack, "_compile", pytest.fail)
    with pytest.raises(CaptureError, match=words):
        flambeau.compile(lambda x: x + 1, options={"guard_filter_fn": choose})(torch.ones(2))


WRONG_INPUTS = {
    "dtype": torch.ones(4, 6, dtype=torch.float64),
    "fewer dimensions": torch.ones(24),
    "more dimensions": torch.ones(4, 6, 1),
    "fewer rows": torch.ones(1, 6),
    "fewer columns": torch.ones(4, 2),
    "device": torch.ones(4, 6, device="meta"),
    "layout": torch.eye(4, 6).to_sparse(),
    "number": 3,
    "nothing": None,
}


@pytest.mark.parametrize("executor", ["native", "python"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("wrong", WRONG_INPUTS)
def test_without_guards_the_program_refuses_what_it_was_not_written_for(
    wrong: str, training: bool, executor: str
) -> None:
    """Its kernels would read and write memory that is not theirs."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        return (torch.sin(x) * y).sum(0)

    options = {"guard_filter_fn": drop_all, "executor": executor}
    compiled = flambeau.compile(f, dynamic=False, options=options)
    x, y = torch.rand(4, 6, requires_grad=training), torch.rand(4, 6)
    assert_same(compiled(x, y), f(x, y))
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        compiled(x, WRONG_INPUTS[wrong])
    assert_same(compiled(x, y.t().contiguous().t()), f(x, y))


@pytest.mark.parametrize("training", [False, True])
def test_without_guards_sizes_still_relate(training: bool) -> None:
    """Symbolic sizes are equal where the kernels take them to be: other sizes are compiled again, or refused as in eager."""

    def f(x: Tensor, y: Tensor) -> Tensor:
        return (torch.sin(x) * y).sum(0)

    compiled = flambeau.compile(f, dynamic=True, options={"guard_filter_fn": drop_all})
    for rows, others in ((4, 4), (8, 8), (6, 5), (9, 2), (2, 90), (3, 3), (7, 1)):
        x, y = torch.rand(rows, 6, requires_grad=training), torch.rand(others, 6)
        if others in (rows, 1):
            assert_same(compiled(x, y), f(x, y))
        else:
            with pytest.raises(RuntimeError, match="size of tensor"):
                compiled(x, y)


def test_without_guards_indices_stay_in_range() -> None:
    """A symbolic number that picks a row: what eager refuses is refused."""

    def f(x: Tensor, n: int) -> Tensor:
        return torch.sin(x)[n] * 2

    compiled = flambeau.compile(f, dynamic=True, options={"guard_filter_fn": drop_all})
    for rows, n in ((8, 3), (8, 5), (4, 2), (6, -2)):
        assert_same(compiled(torch.ones(rows, 5), n), f(torch.ones(rows, 5), n))
    for rows, n in ((4, 5), (4, 4), (4, -9), (4, 1 << 40)):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(torch.ones(rows, 5), n)
