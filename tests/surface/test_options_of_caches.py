"""Options of caches, compilers, frozen weights and measurement; modes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from click.testing import CliRunner
from torch import Tensor, nn

import flambeau
import flambeau_runtime
from flambeau import stack
from flambeau.cli import main
from flambeau.errors import InvalidOption
from flambeau.options import resolve
from flambeau.stages import resolve_stages
from flambeau_inductor.autotune import asked
from flambeau_runtime import BuildError, Store, build_libraries
from tests.comparison import assert_same

from .compiled import program
from .rows import calls


@calls("options", "fx_graph_cache", "force_disable_caches")
def test_graphs_are_kept() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cos(x) * 43

    def is_cached(**options: Any) -> bool:
        return bool(program(function, torch.ones(3), **options).cached)

    assert [is_cached(force_disable_caches=True), is_cached(fx_graph_cache=False), is_cached()] == [False] * 3
    assert [is_cached(), is_cached(fx_graph_cache=False)] == [True, False]


@calls("options", "deterministic")
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
        programs = {
            value: flambeau.explain(model, measure=False, options={"freezing": value})(x).programs
            for value in (True, False)
        }
        assert [program.kind for program in programs[True]] == ["forward", "folding"]
        assert [program.kind for program in programs[False]] == ["forward"]
        compiled = flambeau.compile(model, options={"freezing": True})
        assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)
        model[0].weight.mul_(2)
        assert_same(compiled(x), model(x), rtol=1e-4, atol=1e-5)


@calls("options", "freezing_discard_parameters")
def test_memory_of_folded_parameters_is_given_back() -> None:
    """What is left in another form only; who uses it afterwards is told. Loaded again, it counts again."""

    def sizes(model: nn.Module) -> list[int]:
        return [value.untyped_storage().nbytes() for value in (*model.parameters(), *model.buffers())]

    def made() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(7, 5)).eval()

    x, twin = torch.randn(2, 3, 9, 9), made()
    with torch.no_grad():
        for discard in (False, True):
            model = made()
            before = sizes(model)
            compiled = flambeau.compile(model, options={"freezing": True, "freezing_discard_parameters": discard})
            for _ in range(2):
                assert_same(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
            assert (sizes(model)[0] == 0) is discard  # the convolution's weight, of which the folded one is left
            assert (sum(sizes(model)) < sum(before)) is discard
        with pytest.raises(RuntimeError, match="was given back"):
            model(x)
        assert not any(value.untyped_storage().nbytes() == 0 for value in twin.parameters())


@calls("options", "guard_filter_fn")
def test_guards_are_chosen() -> None:
    compiled = flambeau.compile(
        lambda x, n: x + n, options={"guard_filter_fn": lambda entries: [False for _ in entries]}
    )
    x = torch.ones(3)
    assert [compiled(x, 1).tolist(), compiled(x, 2).tolist()] == [[2, 2, 2], [2, 2, 2]]


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

    found = flambeau.explain(function, mode="lite", measure=False)(torch.ones(3)).programs[0]
    assert found.kernels == 0 and sum(found.library_calls.values()) == 3


# ---- measurement of kernels -------------------------------------------------------------------------------------------------------------


@calls("options", "profile_bandwidth")
@calls("environment", "PROFILE")
def test_bandwidths_are_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kernel, or of those whose names a regular expression is found in."""

    def printed(**options: Any) -> str:
        flambeau.compile(lambda x: torch.sort(torch.sin(x), -1)[0] * 2, options=options)(torch.randn(30, 41))
        return "".join(line for line in capfd.readouterr().err.splitlines(keepends=True) if "profiler" not in line)

    assert printed() == ""
    head, titles, *rows = printed(profile_bandwidth=True).splitlines()
    assert head.startswith("forward ") and titles.split() == ["ms", "GB", "GB/s", "name"]
    assert [row.split()[-1] for row in rows][1:2] == ["aten::sort"] and len(rows) == 3
    milliseconds, gigabytes, rate, name = rows[0].split()
    assert "sin" in name and float(milliseconds) > 0 and float(rate) > 0
    assert float(gigabytes) == pytest.approx(2 * 30 * 41 * 4 / 1e9, abs=1e-6)
    monkeypatch.setenv("FLAMBEAU_PROFILE", "fused_sin")
    assert len(printed().splitlines()) == 3
    monkeypatch.setenv("FLAMBEAU_PROFILE", "1")
    assert len(printed().splitlines()) == 5
    monkeypatch.setenv("FLAMBEAU_PROFILE", "of_no_kernel")
    assert printed() == ""
    with pytest.raises(InvalidOption, match="a regular expression"):
        resolve(None, {"profile_bandwidth_regex": "("})


@calls("options", "benchmark_kernel")
@calls("environment", "BENCHMARK_KERNEL")
@calls("tools", "kernel_benchmark")
def test_kernels_of_a_kept_program_are_timed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, or one; of a file, so in another process too."""

    def function(x: Tensor) -> Tensor:
        return torch.sort(torch.sin(x), -1)[0] * 2

    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    x = torch.randn(30, 41)
    flambeau.compile(function)(x)
    assert not (tmp_path / "programs").exists()
    flambeau.compile(function, options={"benchmark_kernel": True})(x)
    (kept,) = (tmp_path / "programs").iterdir()
    kept.unlink()
    monkeypatch.setenv("FLAMBEAU_BENCHMARK_KERNEL", "1")
    flambeau.compile(function)(x)
    (kept,) = (tmp_path / "programs").iterdir()
    run = ["kernels", str(kept), "--rounds", "2"]
    table = CliRunner().invoke(main, run).stdout
    assert "aten::sort" in table and "GB/s" in table
    (sine,) = json.loads(CliRunner().invoke(main, [*run, "--kernel", "sin", "--json"]).stdout)
    assert sine["kind"] == "kernel" and sine["bytes"] == 2 * 30 * 41 * 4
    assert sine["bytes_per_second"] == pytest.approx(sine["bytes"] / sine["seconds"])
    wrong = CliRunner().invoke(main, [*run, "--kernel", "cosine"])
    assert wrong.exit_code == 2 and "there are" in wrong.output
    (tmp_path / "other").write_text("nothing")
    broken = CliRunner().invoke(main, ["kernels", str(tmp_path / "other")])
    assert broken.exit_code == 2 and "holds no program" in broken.output
