"""Settings do what they say: environment, assignment, patches, the call's own arguments, in this order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import flambeau
from flambeau.compiler import config
from flambeau.defaults import _PACKAGES, current, option_defaults, settings_of
from flambeau.errors import InvalidOption, NotHereYet, UnknownName
from flambeau.options import Options
from flambeau.stages import resolve_stages

NOTHING = dict.fromkeys(("fullgraph", "dynamic", "recompile_limit"))
OTHER = {
    "fullgraph": True,
    "dynamic": True,
    "recompile_limit": 99,
    "error_on_recompile": True,
    "fail_on_recompile_limit_hit": True,
    "suppress_errors": False,
    "verbose": True,
    "inline_depth": 7,
    "unroll_limit": 70,
    "specialize_int": True,
    "specialize_float": True,
    "capture_scalar_outputs": False,
    "capture_dynamic_output_shape_ops": False,
    "skip_nnmodule_hook_guards": True,
    "error_on_graph_break": True,
    "assume_static_by_default": False,
    "automatic_dynamic_shapes": False,
    "accumulated_recompile_limit": 99,
    "recursion_limit": 99_999,
    "allow_unspec_int_on_nn_module": False,
    "force_parameter_static_shapes": False,
    "dynamic_sources": "L['x']",
    "unbacked_sources": "L['x']",
    "dynamic_values": "7",
    "dont_skip_tracing": True,
    "trace_numpy": False,
    "side_effect_replay_policy": "warn",
    "run_gc_after_compile": True,
    "guard_nn_modules": False,
    "guard_filter_fn": list,
    "activation_memory_budget": 0.5,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_not_in_allowlist": False,
    "ban_recompute_reductions": False,
    "aggressive_recomputation": True,
    "joint_graph_constant_folding": False,
    "disabled_joint_passes": "min_cut",
    "compile_cprofile": True,
    "progress": False,
    "log_file_name": "log.txt",
    "enable_compiler_collectives": True,
    "job_id": "other",
    "pgo_extra_read_key": "other",
    "pgo_extra_write_key": "other",
    "disable": True,
    "cache_key_tag": "other",
    "force_disable_caches": True,
    "cache_shared": True,
    "force_cudagraph_gc": True,
    "reorderable_logging_functions": frozenset({print}),
    "optimize_ddp": False,
    "cudagraphs_forward": False,
    "cudagraphs_backward": True,
}
"""A value of each setting that is not its default."""


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The defaults before and after."""
    monkeypatch.delenv("FLAMBEAU_SUPPRESS_ERRORS", raising=False)
    yield
    for name in config.names():
        delattr(config, name)


def seen_by_a_call(name: str) -> object:
    """The value that a compile call would work with."""
    settings = settings_of(NOTHING, Options())
    stages = resolve_stages(Options().under(option_defaults()), settings)
    package = _PACKAGES[name]
    return getattr(settings.capture if package == "capture" else getattr(stages, package), name)


def test_every_setting_has_another_value_here() -> None:
    assert sorted(OTHER) == sorted(config.names())
    assert all(getattr(config, name) != value for name, value in OTHER.items())


@pytest.mark.parametrize("name", OTHER)
def test_assignment_and_patches_reach_the_compile_call(name: str) -> None:
    """Both read back, both are what a call gets, both can be taken back."""
    default = getattr(config, name)
    with config.patch({name: OTHER[name]}):
        assert getattr(config, name) == seen_by_a_call(name) == OTHER[name]
        setattr(config, name, default)
        assert getattr(config, name) == default
    assert getattr(config, name) == seen_by_a_call(name) == default
    setattr(config, name, OTHER[name])
    assert getattr(config, name) == seen_by_a_call(name) == OTHER[name]
    with config.patch(**{name: default}):
        assert seen_by_a_call(name) == default
    assert seen_by_a_call(name) == OTHER[name]
    delattr(config, name)
    assert seen_by_a_call(name) == default


def test_settings_reach_the_region_and_the_stages() -> None:
    """The limit is the region's, suppression and sharing are the stages'."""
    config.recompile_limit = 99
    assert flambeau.compile(len).limit == 99
    assert flambeau.compile(len, recompile_limit=3).limit == 3
    assert flambeau.compile(len, options={"recompile_limit": 8}).limit == 8
    with config.patch(suppress_errors=False, fullgraph=True, cache_shared=True):
        stages = resolve_stages(Options(), current())
    assert (stages.suppress_errors, stages.is_strict, stages.runtime.cache_shared) == (False, True, True)


def test_the_calls_own_arguments_go_first() -> None:
    """Also where they are the defaults."""
    with config.patch(fullgraph=True, suppress_errors=False):
        settings = settings_of({**NOTHING, "fullgraph": False}, Options({"suppress_errors": True}))
    assert (settings.capture.fullgraph, settings.capture.suppress_errors) == (False, True)


def test_patches_are_not_seen_by_other_threads() -> None:
    """Assignments are."""
    seen = []
    config.inline_depth = 5
    with config.patch(recompile_limit=3):
        thread = threading.Thread(target=lambda: seen.append((config.recompile_limit, config.inline_depth)))
        thread.start()
        thread.join()
    assert seen == [(8, 5)]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("recompile_limit", 0, InvalidOption),
        ("recompile_limit", "many", InvalidOption),
        ("recompile_limit", True, InvalidOption),
        ("fullgraph", 1, InvalidOption),
        ("dynamic", "maybe", InvalidOption),
        ("cache_shared", "yes", InvalidOption),
        ("guard_filter_fn", 3, InvalidOption),
        ("recompile_limits", 3, UnknownName),
        ("backward_pass_autocast", "off", NotHereYet),
    ],
)
def test_wrong_names_and_values_are_errors(name: str, value: object, error: type[Exception]) -> None:
    """At once, and nothing is changed."""
    with pytest.raises(error, match=name):
        setattr(config, name, value)
    with pytest.raises(error, match=name), config.patch(**{name: value}):
        pass
    assert current() == current().__class__(flambeau.defaults.flambeau_capture.Config(suppress_errors=True))


@pytest.mark.parametrize(("text", "expected"), [("0", False), ("off", False), ("No", False), ("1", True), ("", True)])
def test_suppression_from_the_environment(monkeypatch: pytest.MonkeyPatch, text: str, expected: bool) -> None:
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", text)
    assert config.suppress_errors is expected
    assert resolve_stages(Options()).suppress_errors is expected


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("FLAMBEAU_SUPPRESS_ERRORS", "perhaps"),
        ("FLAMBEAU_CAPTURE_DYNAMIC", "perhaps"),
        ("FLAMBEAU_CAPTURE_SUPPRESS_ERRORS", "perhaps"),
        ("FLAMBEAU_AUTOGRAD_NATIVE", "perhaps"),
        ("FLAMBEAU_INDUCTOR_FUSE", "perhaps"),
        ("FLAMBEAU_CACHE", "perhaps"),
        ("CXX", 'g++ "-O2'),
    ],
)
def test_a_wrong_variable_is_told_at_the_compile_call(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    """By its name, whichever package reads it."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(InvalidOption, match=f"{variable}="):
        flambeau.compile(len)
