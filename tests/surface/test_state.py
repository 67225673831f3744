"""State, accounting and old entry points of the compiler, as torch's documentation has them used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import flambeau
from flambeau import compiler

from .rows import calls

ROOT = Path(__file__).resolve().parents[2]


class Counting:
    """A backend that counts the graphs that it is given, with the sizes of their inputs, and how often it is reset."""

    def __init__(self) -> None:
        self.graphs: list[tuple] = []
        self.resets = 0

    def __call__(self, graph, inputs):
        self.graphs.append(tuple(tuple(value.shape) for value in inputs if isinstance(value, torch.Tensor)))
        return graph.forward

    def reset(self) -> None:
        self.resets += 1

    def get_compiler_config(self) -> dict:
        return {"of": "this backend"}


@calls("compiler", "set_default_backend", "get_default_backend")
def test_a_default_backend() -> None:
    """Compile calls without a backend use it, by name or as it is, until it is taken back."""
    backend = Counting()
    compiler.set_default_backend(backend)
    try:
        assert compiler.get_default_backend() is backend
        assert flambeau.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]
    finally:
        compiler.set_default_backend(None)
    assert len(backend.graphs) == 1
    assert compiler.get_default_backend() == "inductor"
    with pytest.raises(ValueError, match="eager"):
        compiler.set_default_backend("eagr")


@calls("compiler", "reset")
@calls("backends", "backend_reset")
def test_reset_forgets_everything() -> None:
    """Entries, what they taught about sizes, and the backend is told."""
    backend = Counting()
    function = flambeau.compile(lambda x: x.sin(), backend=backend)
    for size in (2, 3):
        function(torch.ones(size))
    assert len(backend.graphs) == 2
    compiler.reset()
    assert backend.resets == 1
    for size in (4, 5):
        function(torch.ones(size))
    assert len(backend.graphs) == 4, "the first size after it is a number again"


@calls("helpers", "reset_code_caches")
def test_entries_alone_are_forgotten() -> None:
    """What changes is known: one graph serves the sizes that come after it."""
    backend = Counting()
    function = flambeau.compile(lambda x: x.sin(), backend=backend)
    for size in (2, 3):
        function(torch.ones(size))
    compiler.reset_code_caches()
    for size in (4, 5):
        function(torch.ones(size))
    assert len(backend.graphs) == 3
    assert backend.resets == 0


@calls("helpers", "run")
def test_run_compiles_nothing() -> None:
    """It uses what is there, of the compiled function or of the one that that was made of; all else runs in eager."""
    ran = []

    def noting(graph, inputs):
        def call(*given):
            ran.append(len(given))
            return graph.forward(*given)

        return call

    def double(x):
        return x * 2

    compiled = flambeau.compile(double, backend=noting)
    compiled(torch.ones(2))
    ran.clear()
    for function in (compiled, double):
        only = compiler.run(function)
        assert only(torch.ones(2)).tolist() == [2, 2]
        assert only(torch.ones(3)).tolist() == [2, 2, 2]
    assert len(ran) == 2
    with pytest.raises(TypeError, match="run takes"):
        compiler.run(3)


@calls("helpers", "optimize", "optimize_assert")
def test_old_entry_points() -> None:
    """Decorators that compile; the second makes a break an error."""

    def breaks(x):
        y = x + 1
        compiler.graph_break()
        return y * 2

    backend = Counting()
    assert compiler.optimize(backend)(breaks)(torch.ones(2)).tolist() == [4, 4]
    assert len(backend.graphs) == 2
    for strict in (compiler.optimize_assert(backend), compiler.optimize(backend, nopython=True)):
        with pytest.raises(RuntimeError, match="graph_break"):
            strict(breaks)(torch.ones(2))


class Asks(nn.Module):
    """Gives another result while it is exported."""

    def forward(self, x):
        return x + 1 if compiler.is_exporting() else x - 1


@calls("compiler", "is_exporting")
def test_code_asks_whether_it_is_exported() -> None:
    """False in plain Python and while compiling, True under `torch.export`."""
    x = torch.zeros(2)
    assert Asks()(x).tolist() == [-1, -1]
    assert flambeau.compile(Asks(), fullgraph=True, backend="eager")(x).tolist() == [-1, -1]
    assert torch.export.export(Asks(), (x,), strict=False).module()(x).tolist() == [1, 1]


@calls("helpers", "on_compile_start", "on_compile_end", "register_hook_for_recompile_user_context")
def test_callbacks() -> None:
    """Called once around each compile and not in a warm call; an error of one is the call's."""
    seen = []

    @compiler.on_compile_start
    def start(event):
        seen.append(("start", event.function, event.compile_id.partition("/")[2]))

    compiler.on_compile_end(lambda event: seen.append(("end", event.function, event.compile_id.partition("/")[2])))
    compiler.register_hook_for_recompile_user_context(lambda: "epoch 3" * 100)
    try:
        function = flambeau.compile(_named, backend="eager")
        function(torch.ones(2))
        function(torch.ones(2))
        assert seen == [("start", "_named", "0"), ("end", "_named", "0")]
        function(torch.ones(3))
        assert seen[2:] == [("start", "_named", "1"), ("end", "_named", "1")]
        last = compiler.get_compilation_metrics()[-1]
        assert [context[:7] for context in last.recompile_user_contexts] == ["epoch 3"]
        assert len(last.recompile_user_contexts[0]) == 256

        def fails(event):
            raise ValueError("of the callback")

        compiler.on_compile_start(fails)
        with pytest.raises(RuntimeError, match="of the callback"):
            flambeau.compile(_named, backend="eager")(torch.ones(2))
    finally:
        from flambeau_capture import compile_hooks

        compile_hooks._contexts.clear()
        compiler.reset()
    seen.clear()
    flambeau.compile(_named, backend="eager")(torch.ones(2))
    assert not seen


def _named(x):
    return x * 3


@calls("helpers", "counters", "compile_times", "get_compilation_metrics")
@calls("tools", "compilation_metrics")
def test_accounting() -> None:
    """What a compile adds to each, and that a warm call adds nothing."""
    compiler.counters.clear()
    compiler.clear_compilation_metrics()

    def breaks(x):
        y = x + 1
        compiler.graph_break()
        return y * 2

    function = flambeau.compile(breaks, name="counted")
    function(torch.ones(2))
    function(torch.ones(2))
    counters = compiler.counters
    assert counters["stats"]["unique_graphs"] == 2
    assert counters["stats"]["calls_captured"] == 2
    assert counters["frames"]["total"] == counters["frames"]["ok"] == 2
    assert sum(counters["graph_break"].values()) == 1
    assert counters["aot_autograd"]["total"] == counters["aot_autograd"]["ok"]
    found = counters["inductor"]
    assert found["fxgraph_cache_hit"] + found["fxgraph_cache_miss"] + found["fxgraph_cache_bypass"] == 2
    function(torch.ones(3))
    assert counters["recompiles"]["test_accounting.<locals>.breaks"] == 1
    first, *_, last = compiler.get_compilation_metrics()
    assert (first.region, first.co_name, first.graph_op_count, first.graph_input_count) == ("counted", "breaks", 1, 1)
    assert first.entire_frame_compile_time_s > first.backend_compile_time_s > 0
    assert any("graph_break()" in reason for reason in first.graph_breaks)
    assert any("expected 2" in metrics.recompile_reason for metrics in compiler.get_compilation_metrics())
    assert last.guard_count > 0
    table = compiler.compile_times()
    assert "capture" in table and "stage" in table
    stages, values = compiler.compile_times("csv", aggregate=True)
    assert "capture" in stages and all(float(value) >= 0 for value in values)
    with pytest.raises(ValueError, match="html"):
        compiler.compile_times("html")


_PROCESS = """
import os, sys, pathlib, torch, flambeau
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
bundle = pathlib.Path(sys.argv[1])
if bundle.exists():
    info = flambeau.compiler.load_cache_artifacts(bundle.read_bytes())
    assert info is not None and info.inductor_artifacts and info.aot_autograd_artifacts, info
compiled = flambeau.compile(model)
x = torch.ones(3, 8)
compiled(x).sum().backward()
assert torch.allclose(compiled(x), model(x), atol=1e-6)
if not bundle.exists():
    data, info = flambeau.compiler.save_cache_artifacts()
    assert not info.empty()
    bundle.write_bytes(data)
else:
    found = flambeau.compiler.counters["inductor"]
    assert found["fxgraph_cache_hit"] == 1 and not found["fxgraph_cache_miss"], found
"""


@calls("compiler", "save_cache_artifacts", "load_cache_artifacts")
def test_a_bundle_makes_another_process_warm(tmp_path) -> None:
    """With an empty cache folder of its own, the second process runs no compiler."""
    bundle, runs = tmp_path / "bundle", tmp_path / "runs"
    compiler_script = tmp_path / "cxx"
    compiler_script.write_text(f'#!/bin/sh\necho "$@" >> {runs}\nexec g++ "$@"\n')
    compiler_script.chmod(0o755)
    compiles = []
    for process in ("first", "second"):
        runs.write_text("")
        environment = {**os.environ, "CXX": str(compiler_script), "FLAMBEAU_CACHE_DIR": str(tmp_path / process)}
        done = subprocess.run(
            [sys.executable, "-c", _PROCESS, str(bundle)], cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        compiles.append([line for line in runs.read_text().splitlines() if " -shared" in f" {line}"])
    assert compiles[0], "the first process compiles kernels"
    assert not compiles[1], compiles[1]


def test_what_is_no_bundle_is_told() -> None:
    """Nothing is loaded, after a warning."""
    with pytest.warns(RuntimeWarning, match="no cache artifacts were loaded"):
        assert compiler.load_cache_artifacts(b"something else") is None
