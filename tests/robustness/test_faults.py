"""A fault of ours in any stage: with `suppress_errors` the user gets what eager gives, after one warning that says what to send us, and nothing half-made
stays on disk; without it, and under `fullgraph`, an error of flambeau says which stage it was."""

from __future__ import annotations

import errno
import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
import flambeau_runtime.cache.store
from flambeau import stack
from tests.comparison import assert_same

#: These tests are about what runs in eager.
pytestmark = pytest.mark.judges_itself

STAGES = {
    "capture": "flambeau_capture.pipeline._run",
    "bytecode": "flambeau_capture.pipeline.assemble",
    "guards": "flambeau_capture.hook._checked_tree",
    "options": "flambeau.stack.resolve_stages",
    "flatten": "flambeau_autograd.flatten",
    "repeats": "flambeau.stack.outline",
    "key": "flambeau.stack.graph_key",
    "toolchain": "flambeau.stack.find_toolchain",
    "joint graph": "flambeau_autograd.prepare",
    "inductor": "flambeau_inductor.compile_frozen",
    "build": "flambeau_runtime.build_libraries",
    "bytes": "flambeau.compiled_graph.CompiledGraph.to_bytes",
    "load": "flambeau_runtime.load",
    "join": "flambeau_autograd.assemble",
    "store, read": "flambeau_runtime.cache.store.Store.get",
    "store, written": "flambeau_runtime.cache.store.Store.put",
    "lock": "flambeau_runtime.cache.store.Store.lock",
}
"""What each stage calls, which fails."""
OF_THE_STORE = {"store, read", "store, written", "lock"}
"""Those that may not find kernels there, or what fails would not be called."""


class Fault(Exception):
    """One that no stage raises."""


def raises(error: Callable[[], BaseException]) -> Callable[..., Any]:
    def fail(*args: Any, **more: Any) -> Any:
        raise error()

    return fail


def program(x: Tensor, w: Tensor) -> Tensor:
    return (torch.nn.functional.dropout(x.tanh() @ w, 0.5) + x.sum()).exp()


def results(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Two calls, each with its gradients, and what the generator gives afterwards."""
    torch.manual_seed(3)
    found: list[Any] = []
    for _ in range(2):
        x, w = (torch.linspace(-1, 1, n * 4).reshape(-1, 4).requires_grad_() for n in (3, 4))
        y = function(x, w)
        y.sum().backward()
        found += [y.detach(), x.grad, w.grad]
    return *found, torch.rand(2)


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "1")
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that has those of `program`: a C++ compiler takes longer than all else here."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(folder))
        results(flambeau.compile(program))
    flambeau.compiler.reset()
    return folder


def take(kernels: Path, cache: Path) -> None:
    """Have a cache hold them too."""
    shutil.copytree(kernels / "v1" / "kernel", cache / "v1" / "kernel", dirs_exist_ok=True)


def leftovers(folder: Path) -> list[Path]:
    """Files that are no entries."""
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path for path in files if "tmp" in path.parts or path.suffix in (".tmp", ".new")]


def told(function: Callable[..., Any]) -> tuple[tuple[Any, ...], list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = results(function)
    return found, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails(stage: str, fresh: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager's results and gradients, one warning for the function, and the next compile is as if nothing had been."""
    if stage not in OF_THE_STORE:
        take(kernels, fresh)
    expected = results(program)
    with monkeypatch.context() as patch:
        patch.setattr(STAGES[stage], raises(lambda: Fault("seeded")))
        found, warned = told(flambeau.compile(program))
        for given, wanted in zip(found, expected, strict=True):
            assert_same(given, wanted)
        assert len(warned) == 1, warned
        assert "Fault: seeded" in warned[0] and "report it" in warned[0]
        for more in ({"fullgraph": True}, {}):
            patch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "1" if more else "0")
            with pytest.raises(flambeau.FlambeauError, match="Fault: seeded"):
                results(flambeau.compile(program, **more))
    assert not leftovers(fresh)
    take(kernels, fresh)
    found, warned = told(flambeau.compile(program, fullgraph=True))
    for given, wanted in zip(found, expected, strict=True):
        assert_same(given, wanted)
    assert not warned
    assert list((fresh / "v1" / "graph").rglob("*")) and not leftovers(fresh)


@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_program_that_fails_when_it_runs(
    stage: str, fresh: Path, kernels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is repeated in eager, with the numbers that it draws and the gradients of these."""
    take(kernels, fresh)
    expected = results(program)
    made = stack.load_program

    def load(artifact: Any, constants: Any, kind: str, *more: Any) -> Any:
        return raises(lambda: Fault("seeded")) if kind == stage else made(artifact, constants, kind, *more)

    monkeypatch.setattr(stack, "load_program", load)
    for native in ("1", "0"):
        monkeypatch.setenv("FLAMBEAU_AUTOGRAD_NATIVE", native)
        found, warned = told(flambeau.compile(program))
        for given, wanted in zip(found, expected, strict=True):
            assert_same(given, wanted)
        assert len(warned) == 2
        assert all("repeated in eager: Fault: seeded" in words and "report it" in words for words in warned)
        with monkeypatch.context() as patch:
            for more in ({"fullgraph": True}, {}):
                patch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "1" if more else "0")
                with pytest.raises(flambeau.FlambeauError, match="Fault: seeded") as caught:
                    results(flambeau.compile(program, **more))
                assert "eager runs this" in caught.value.__notes__[0]


class Moody:
    """An operator whose backward raises when it is told to, once or always."""

    def __init__(self) -> None:
        self.left = 0
        name = "flambeau_tests::moody"
        self.forward = torch.library.custom_op(name, lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor")
        self.backward = torch.library.custom_op(
            f"{name}_backward", self._backward, mutates_args=(), schema="(Tensor x, Tensor g) -> Tensor"
        )
        self.forward.register_fake(torch.empty_like)
        self.backward.register_fake(lambda x, g: torch.empty_like(g))
        self.forward.register_autograd(
            lambda ctx, g: self.backward(*ctx.saved_tensors, g),
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        )

    def _backward(self, x: Tensor, g: Tensor) -> Tensor:
        if self.left:
            self.left -= 1
            raise ArithmeticError("in a bad mood")
        return g * 2


@pytest.fixture(scope="module")
def moody() -> Moody:
    return Moody()


@pytest.mark.parametrize("native", ["1", "0"])
def test_a_backward_that_raises_on_its_way(
    native: str, fresh: Path, moody: Moody, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one keeps what it is given until it has passed, and so does each that may come again. Later ones free it: their error passes, and says so."""
    monkeypatch.setenv("FLAMBEAU_AUTOGRAD_NATIVE", native)

    def function(x: Tensor) -> Tensor:
        return (moody.forward(x.sin()).tanh() * x).sum()

    def step(call: Callable[[Tensor], Tensor], failures: int, **how: bool) -> Tensor | None:
        x = torch.linspace(-2, 2, 8).requires_grad_()
        loss = call(x)
        moody.left = failures
        try:
            loss.backward(**how)
        finally:
            moody.left = 0
        return x.grad

    compiled = flambeau.compile(function)
    expected = step(function, 0)
    for how in ({}, {"retain_graph": True}):
        with pytest.warns(RuntimeWarning, match="backward failed and is repeated in eager: ArithmeticError"):
            assert_same(step(compiled, 1, **how), expected)
        assert_same(step(compiled, 0), expected)
    with pytest.raises(ArithmeticError, match="bad mood") as caught:
        step(compiled, 9)
    if native == "1":
        assert any("has freed what it was given" in note for note in caught.value.__notes__)
    with pytest.raises(ArithmeticError, match="bad mood") as eagers:
        step(compiled, 9, retain_graph=True)
    assert not any("report it" in note for note in getattr(eagers.value, "__notes__", ()))
    assert_same(step(compiled, 0), expected)


def test_words_of_a_miss_that_fail(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What explains a recompile is no reason not to compile."""
    monkeypatch.setattr("flambeau_capture.hook.explain", raises(lambda: Fault("seeded")))
    compiled = flambeau.compile(lambda x: x.exp() + 1, backend="eager")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (3, 4, 5):
            x = torch.linspace(-1, 1, n)
            assert_same(compiled(x), x.exp() + 1)
    assert len(caught) <= 1


full = raises(lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


class Disk:
    """`os`, of which one function finds the disk full."""

    def __init__(self, failing: str) -> None:
        setattr(self, failing, full)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.mark.parametrize("where", ["fsync", "replace", "mkdir", "utime"])
def test_a_disk_that_fails(where: str, fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store goes on in memory after one warning."""
    expected = results(program)
    with monkeypatch.context() as patch:
        if where == "mkdir":
            patch.setattr(flambeau_runtime.cache.store.Path, "mkdir", full)
        else:
            patch.setattr(flambeau_runtime.cache.store, "os", Disk(where))
        found, warned = told(flambeau.compile(program))
    for given, wanted in zip(found, expected, strict=True):
        assert_same(given, wanted)
    assert [words for words in warned if "in eager" in words] == []
    assert len(warned) == (where != "utime"), warned
    assert not leftovers(fresh)


@pytest.mark.parametrize("damage", [b"garbage", None])
def test_damaged_entries(damage: bytes | None, fresh: Path, kernels: Path) -> None:
    """They are misses, removed and written anew."""
    take(kernels, fresh)
    expected = results(program)
    results(flambeau.compile(program))
    entries = [path for path in (fresh / "v1").glob("*/??/*") if path.is_file()]
    assert entries
    for path in entries:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    flambeau.compiler.reset()
    for times in (1, 0):
        found, warned = told(flambeau.compile(program))
        for given, wanted in zip(found, expected, strict=True):
            assert_same(given, wanted)
        assert len(warned) == times, warned
    assert not leftovers(fresh)
