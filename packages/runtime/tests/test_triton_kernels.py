"""Compiling Triton text for sm_90 and running it under the interpreter."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
import torch
from attrs import evolve

pytest.importorskip("triton")

from flambeau_runtime import triton_kernels
from flambeau_runtime.cache import CacheKey, Store
from flambeau_runtime.triton_kernels import (
    ALIGNED,
    CompileRequest,
    Cubin,
    TritonCompileError,
    compile_kernel,
    compile_kernels,
    launch_arguments,
    run_interpreted,
)
from flambeau_runtime.workers import Pool, triton_task
from flambeau_runtime.workers.compilers import Compilers

ADD = """
import triton
import triton.language as tl


@triton.jit
def add(a, b, out, n, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    m = x < n
    tl.store(out + x, tl.load(a + x, m) + tl.load(b + x, m), m)
"""
ASSEMBLY = """tl.inline_asm_elementwise(
        "// halve 0.5\\nmov.b32 $0, $1;", "=f,f", [tl.load(a + x, m)], dtype=tl.float32, is_pure=True, pack=1
    )"""
SIGNATURE = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}


def test_interpreter_changes_tensors_in_place() -> None:
    """The interpreter runs the kernel on CPU tensors, views with an offset included."""
    a, b, out = torch.randn(100)[7:], torch.randn(93), torch.zeros(93)
    run_interpreted(ADD, "add", (3, 1, 1), {"a": a, "b": b, "out": out, "n": 93, "XBLOCK": 32})
    assert torch.equal(out, a + b)


def test_interpreter_in_a_worker_gives_the_same() -> None:
    """A worker process that interprets sends the changed bytes back into the caller's storage."""
    a, b, out = torch.randn(100)[7:], torch.randn(93), torch.zeros(100)[3:96]
    with Pool(1) as pool:
        run_interpreted(ADD, "add", (3, 1, 1), {"a": a, "b": b, "out": out, "n": 93, "XBLOCK": 32}, pool=pool)
    assert torch.equal(out, a + b)


def test_assembly_without_a_stand_in_says_so() -> None:
    """The interpreter knows what it computes by the name in its first line."""
    source = ADD.replace("tl.load(a + x, m)", ASSEMBLY)
    a, b, out = torch.ones(8), torch.ones(8), torch.empty(8)
    with pytest.raises(Exception, match="assembly halve has no stand-in"):
        run_interpreted(source, "add", (1, 1, 1), {"a": a, "b": b, "out": out, "n": 8, "XBLOCK": 8})


@pytest.mark.parametrize(("values", "fails"), [((1.0,) * 8, False), ((1.0,) * 7 + (-1.0,), True), ((-1.0,) * 8, True)])
def test_an_assertion_of_a_kernel_holds_for_every_element(values: tuple[float, ...], fails: bool) -> None:
    """As on a device: one element that it does not hold for stops the launch, and what is masked counts for nothing."""
    source = ADD.replace(
        "tl.store(", "tl.device_assert((tl.load(a + x, m, 1.0) > 0) | ~m, 'no position')\n    tl.store("
    )
    a, b, out = torch.tensor([*values, -9.0]), torch.ones(9), torch.zeros(9)
    arguments = {"a": a, "b": b, "out": out, "n": 8, "XBLOCK": 16}
    if fails:
        with pytest.raises(Exception, match="no position"):
            run_interpreted(source, "add", (1, 1, 1), arguments)
        assert not out.any()
    else:
        run_interpreted(source, "add", (1, 1, 1), arguments)
        assert torch.equal(out[:8], a[:8] + 1)


def test_empty_grid_launches_nothing() -> None:
    """A grid with a zero is a no-op."""
    out = torch.ones(1)
    run_interpreted(ADD, "add", (0, 1, 1), {"a": out, "b": out, "out": out, "n": 0, "XBLOCK": 32})
    assert out.item() == 1


def test_cubins_for_sm_90_come_back_in_order() -> None:
    """Two requests give two cubins (ELF files) that name their kernel."""
    requests = [CompileRequest(ADD, "add", SIGNATURE, {"XBLOCK": 256}, ("a", "b", "out"), num_warps=w) for w in (2, 4)]
    cubins = compile_kernels(requests)
    assert [c.num_warps for c in cubins] == [2, 4]
    assert all(c.binary.startswith(b"\x7fELF") and c.name == "add" and c.arch == 90 for c in cubins)


def test_stored_cubins_are_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch comes from the store, equal; a request that differs in its warps is another entry."""
    store = Store(tmp_path)
    request = CompileRequest(ADD, "add", SIGNATURE, {"XBLOCK": 256})
    first = triton_kernels.compile_stored([request, request], store)
    monkeypatch.setattr(triton_kernels, "submit_kernels", lambda requests: [1 / 0 for _ in requests])
    assert triton_kernels.compile_stored([request], Store(tmp_path)) == first[:1] == first[1:]
    with pytest.raises(ZeroDivisionError):
        triton_kernels.compile_stored([evolve(request, num_warps=2)], store)


def test_a_kernel_under_way_is_not_compiled_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second request for it gets the first one's answer; when that is there, the store has it."""
    begun: list[CompileRequest] = []
    answers: list[Future[Cubin]] = []

    def submit(requests: list[CompileRequest]) -> list[Future[Cubin]]:
        begun.extend(requests)
        answers.extend(Future() for _ in requests)
        return answers[-len(requests) :] if requests else []

    monkeypatch.setattr(triton_kernels, "submit_kernels", submit)
    store = Store(tmp_path)
    request = CompileRequest(ADD, "add", SIGNATURE, {"XBLOCK": 256})
    first, again = triton_kernels.submit_stored([request], store), triton_kernels.submit_stored([request], store)
    assert begun == [request] and not first[0].done()
    cubin = Cubin("add", 90, 0, 4, 0, 0, "0", b"binary")
    answers[0].set_result(cubin)
    assert (
        first[0].result() == again[0].result() == triton_kernels.compile_stored([request], Store(tmp_path))[0] == cubin
    )
    triton_kernels.submit_stored([evolve(request, num_warps=2)], store)
    answers[1].set_exception(TritonCompileError("add", "no", ""))
    (retried,) = triton_kernels.submit_stored([evolve(request, num_warps=2)], store)
    assert len(begun) == 3 and not retried.done()
    answers[2].set_result(cubin)


@pytest.mark.parametrize("where", ["submit_kernels", "_pack"])
def test_who_waits_for_a_kernel_learns_of_any_failure(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it cannot be begun or not be stored: nobody waits for ever, and the next request begins anew."""
    cubin: Future[Cubin] = Future()
    cubin.set_result(Cubin("add", 90, 0, 4, 0, 0, "0", b"binary"))
    monkeypatch.setattr(triton_kernels, "submit_kernels", lambda requests: [cubin for _ in requests])

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    request, store = CompileRequest(ADD, "add", SIGNATURE, {"XBLOCK": 256}), Store(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(triton_kernels, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            triton_kernels.compile_stored([request], store)
    assert not triton_kernels._IN_FLIGHT
    assert triton_kernels.compile_stored([request], store) == [cubin.result()]


def test_a_kernel_that_cannot_be_kept_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its future is done, with what storing it raised."""
    cubin: Future[Cubin] = Future()
    cubin.set_result(Cubin("add", 90, 0, 4, 0, 0, "0", b"binary"))
    monkeypatch.setattr(triton_kernels, "submit_kernels", lambda requests: [cubin])
    monkeypatch.setattr(triton_kernels, "_pack", lambda made: 1 // 0)
    (kept,) = triton_kernels.submit_stored([CompileRequest(ADD, "add", SIGNATURE, {"XBLOCK": 256})], Store(tmp_path))
    assert kept.done() and isinstance(kept.exception(), ZeroDivisionError)


def test_a_worker_that_cannot_get_ready_starts_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with Triton is told by the first request, not by the preparation."""
    tried = []

    def broken(*args: object) -> None:
        tried.append(args)
        raise OSError("no Triton here")

    monkeypatch.setattr(triton_task, "compile_entry", broken)
    triton_task.preload()
    assert len(tried) == 1


def test_nothing_is_started_where_kernels_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be the ones that are wanted; who knows better does not name the store."""
    started: list[Compilers] = []
    monkeypatch.setattr(Compilers, "warm_up", lambda self: started.append(self))
    store = Store(tmp_path)
    triton_kernels.warm_up(store)
    assert len(started) == 1
    store.put(CacheKey("cubin", {"source": ""}), b"")
    triton_kernels.warm_up(store)
    assert len(started) == 1
    triton_kernels.warm_up()
    assert len(started) == 2


def test_a_kernel_that_does_not_compile_names_itself() -> None:
    """The error says which kernel and keeps its source."""
    with pytest.raises(TritonCompileError, match="broken") as caught:
        compile_kernel("import triton\n@triton.jit\ndef broken(a):\n    nothing(a)\n", "broken", {"a": "*fp32"})
    assert "nothing" in caught.value.source


def test_launch_arguments_follow_the_signature() -> None:
    """Buffers and scalars are named in signature order; constexprs are added."""
    meta = {"signature": {"a": "*fp32", "n": "i32"}, "constexprs": {"X": 8}}
    assert launch_arguments(meta, ["tensor"], [3]) == {"a": "tensor", "n": 3, "X": 8}
    with pytest.raises(ValueError, match="2 parameters"):
        launch_arguments(meta, ["tensor"], [])


def test_triton_is_not_imported_by_the_module() -> None:
    """Importing the module starts nothing and loads no Triton."""
    code = "import sys, flambeau_runtime.triton_kernels as t; assert 'triton' not in sys.modules, 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=120)


def test_the_version_without_promises():
    request = CompileRequest("", "f", {"x": "*fp32"}, {"BLOCK": 16, ALIGNED: True}, ("x",))
    without = request.without_promises()
    assert without.divisible == () and dict(without.constexprs) == {"BLOCK": 16, ALIGNED: False}
    plain = CompileRequest("", "f", {"x": "*fp32"}, {"BLOCK": 16}, ("x",)).without_promises()
    assert dict(plain.constexprs) == {"BLOCK": 16}
