"""Environment variables: each in a table that the documentation is made of, each with the effect of what it sets."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

import flambeau
from flambeau.compiler import config
from flambeau.defaults import option_defaults
from flambeau.environment import variables
from flambeau.errors import InvalidOption
from flambeau.options import OPTIONS, Options
from flambeau.stages import resolve_stages
from tests import scripts

from .rows import calls

ROOT = Path(__file__).parents[2]
#: What other variables begin with.
_PREFIXES = {"FLAMBEAU_"} | {f"FLAMBEAU_{word}_" for word in ("CAPTURE", "AUTOGRAD", "INDUCTOR", "REPRO", "OVERRIDE")}


def test_every_variable_in_the_sources_is_listed() -> None:
    """Texts that are the name of a variable and nothing else."""
    named = set()
    for path in sorted(ROOT.glob("packages/*/src/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("FLAMBEAU_"):
                if node.value.replace("_", "").isalnum() and node.value.isupper():
                    named.add(node.value)
    missing = named - _PREFIXES - {variable.name for variable in variables()}
    assert not missing, missing


def test_every_option_has_a_variable() -> None:
    """But for functions and lists."""
    without = {name for name, spec in OPTIONS.items() if not spec.variables}
    assert all(spec.field.metadata["kind"] is object for spec in map(OPTIONS.get, without) if spec is not None)


MIRRORS: dict[str, tuple[str, str, Any]] = {
    "MAX_AUTOTUNE": ("max_autotune", "1", True),
    "MAX_AUTOTUNE_GEMM": ("max_autotune_gemm", "1", True),
    "MAX_AUTOTUNE_POINTWISE": ("max_autotune_pointwise", "1", True),
    "MAX_AUTOTUNE_GEMM_BACKENDS": ("max_autotune_gemm_backends", "TRITON", "TRITON"),
    "COORDINATE_DESCENT_TUNING": ("coordinate_descent_tuning", "1", True),
    "FREEZING": ("freezing", "1", True),
    "CUDAGRAPHS": ("triton.cudagraphs", "1", True),
    "COMPILE_THREADS": ("compile_threads", "3", 3),
    "EMULATE_PRECISION_CASTS": ("emulate_precision_casts", "0", False),
    "DETERMINISTIC": ("deterministic", "1", True),
    "GRAPH_PARTITION": ("graph_partition", "0", False),
    "SIZE_ASSERTS": ("size_asserts", "0", False),
    "NAN_ASSERTS": ("nan_asserts", "1", True),
    "FX_GRAPH_CACHE": ("fx_graph_cache", "0", False),
    "FORCE_DISABLE_CACHES": ("force_disable_caches", "1", True),
}


@pytest.mark.parametrize("name", MIRRORS)
@calls("environment", *MIRRORS)
def test_a_variable_is_the_default_of_its_option(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An assignment goes before it, and what a call is given before both; what the option does is seen in `test_options*.py`."""
    option, text, value = MIRRORS[name]
    spec = OPTIONS[option]
    monkeypatch.setenv(f"FLAMBEAU_{name}", text)
    assert Options().under(option_defaults())[option] == value != spec.default
    assert getattr(getattr(resolve_stages(Options()), spec.package), spec.field.name) == value
    with flambeau.inductor.config.patch({option: spec.default}):
        assert Options().under(option_defaults())[option] == spec.default
    assert Options({option: spec.default}).under(option_defaults())[option] == spec.default
    monkeypatch.setenv(f"FLAMBEAU_{name}", "")
    assert Options().under(option_defaults())[option] == spec.default


@pytest.mark.parametrize("name", ["FLAMBEAU_NAN_ASSERTS", "FLAMBEAU_DISABLE", "FLAMBEAU_CUDAGRAPHS"])
def test_a_value_that_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "perhaps")
    with pytest.raises(InvalidOption, match=f"{name}='perhaps': expected on or off"):
        flambeau.compile(torch.sin)


@calls("environment", "NAN_ASSERTS")
def test_a_check_that_a_variable_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_NAN_ASSERTS", "1")
    with pytest.raises(flambeau.errors.NotFinite):
        flambeau.compile(torch.log)(torch.zeros(3))


@calls("environment", "CACHE_KEY_TAG")
def test_a_tag_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def tagged(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x) * 53

    def is_cached() -> bool:
        return bool(flambeau.explain(tagged)(torch.ones(3)).programs[0].cached)

    assert [is_cached(), is_cached()] == [False, True]
    monkeypatch.setenv("FLAMBEAU_CACHE_KEY_TAG", "other")
    assert is_cached() is False


@calls("environment", "SUPPRESS_ERRORS")
def test_whether_our_failures_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    assert config.suppress_errors is False
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "1")
    assert config.suppress_errors is True


PROGRAM = """
import torch, flambeau
def f(x): return torch.sin(x) + 1
print(flambeau.compile(f) is f)
flambeau.compile(f)(torch.ones(3))
"""


@calls("environment", "COMPILE_DISABLE", "CACHE_DIR", "CXX")
def test_switches_of_a_process(tmp_path: Path) -> None:
    """Nothing compiled; a cache folder of its own; a compiler that is called."""

    def run(**environment: object) -> str:
        done = scripts.run(PROGRAM, tmp_path, **environment)
        assert done.status == 0, done.stderr
        return done.stdout

    assert run(FLAMBEAU_DISABLE="1", FLAMBEAU_CACHE_DIR=tmp_path / "a") == "True\n"
    assert not (tmp_path / "a").exists()
    called = tmp_path / "called"
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\ntouch {called}\nexec g++ "$@"\n')
    compiler.chmod(0o755)
    assert run(FLAMBEAU_CACHE_DIR=tmp_path / "b", CXX=compiler) == "False\n"
    assert any((tmp_path / "b").iterdir()) and called.exists()
