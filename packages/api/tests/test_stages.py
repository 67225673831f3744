"""The cache key holds every package's resolved configuration: each field and each variable is flipped."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

import flambeau_autograd as autograd
from flambeau.defaults import current, variables
from flambeau.graph_key import Uncacheable, graph_key
from flambeau.options import OPTIONS, RECORDS, Options
from flambeau.stack import mark_static
from flambeau.stages import Stages, resolve_stages
from flambeau_runtime.option_fields import variables_of

FIELDS = [(name, option.name) for name, record in RECORDS.items() for option in attrs.fields(record)]
_PASSES = ("joint_custom_pre_pass", "joint_custom_post_pass", "post_grad_custom_pre_pass", "post_grad_custom_post_pass")
SOURCES = "max_autotune_gemm_backends", "max_autotune_conv_backends"
TEXTS = {
    **dict.fromkeys(SOURCES, "ATEN"),
    "cache_dir": "/elsewhere",
    "cxx": "clang++",
    "cxx_flags": "-g",
    "cuda_driver": "other.so",
    "dump": "/tmp/dump",
    "optimize_ddp": False,
    "reorderable_logging_functions": frozenset({print}),
}


def other_value(option: Any) -> Any:
    """A value that the field takes and that is not its default."""
    kind, choices = option.metadata["kind"], option.metadata["choices"]
    if choices:
        return next(choice for choice in reversed(choices) if choice != option.default)
    if kind is bool:
        return not option.default
    if kind in (int, float):
        return (option.default or 1) / 2 if kind is float else (option.default or 0) + 3
    return TEXTS.get(option.name, "other" if kind is str else (3,) if option.name.endswith("_sizes") else list)


def field(package: str, name: str) -> Any:
    return getattr(attrs.fields(RECORDS[package]), name)


def variables_of_field(package: str, name: str) -> list[str]:
    return variables_of(RECORDS[package], field(package, name))


def key(stages: Stages, options: Options | None = None) -> dict[str, str]:
    graph = fx.symbolic_trace(lambda x: torch.relu(x))
    return graph_key(graph, options or Options(), stages)


@pytest.mark.parametrize(("package", "name"), FIELDS)
def test_a_field_is_in_the_key_exactly_where_it_is_marked(package: str, name: str) -> None:
    """Capture's are not: what it decides is in the graph."""
    option = field(package, name)
    stages = resolve_stages(Options())
    if name in _PASSES:
        return  # by what they say of themselves
    if package == "capture":
        changed = resolve_stages(
            Options(), attrs.evolve(current(), capture=attrs.evolve(current().capture, **{name: other_value(option)}))
        )
    else:
        record = attrs.evolve(getattr(stages, package), **{name: other_value(option)})
        assert record != getattr(stages, package)
        changed = attrs.evolve(stages, **{package: record})
    assert (key(changed) != key(stages)) is option.metadata["key"]


@pytest.mark.parametrize(("package", "name"), [at for at in FIELDS if variables_of_field(*at)])
def test_a_variable_changes_the_key_exactly_where_its_field_is_marked(
    monkeypatch: pytest.MonkeyPatch, package: str, name: str
) -> None:
    """From the text in the environment to the key of a graph."""
    option = field(package, name)
    plain = key(resolve_stages(Options()))
    before = RECORDS[package].from_environment()
    value = other_value(option)
    for variable in variables_of_field(package, name):
        with monkeypatch.context() as patched:
            patched.setenv(variable, str(value))
            assert variable in variables()
            assert getattr(RECORDS[package].from_environment(), name) == value != getattr(before, name)
            assert (key(resolve_stages(Options())) != plain) is option.metadata["key"]


@pytest.mark.parametrize("package", RECORDS)
def test_all_packages_read_variables_in_one_way(package: str) -> None:
    """Booleans by the same words; nothing is as not set; everything else is an error that names the variable."""
    record = RECORDS[package]
    switches = [o.name for o in attrs.fields(record) if o.metadata["kind"] is bool]
    numbers = [o.name for o in attrs.fields(record) if o.metadata["kind"] in (int, float)]
    assert switches and numbers
    for name in switches:
        for text, value in {
            "1": True,
            "ON": True,
            "true": True,
            "Yes": True,
            "0": False,
            "off": False,
            "no": False,
            "False": False,
        }.items():
            for variable in variables_of_field(package, name):
                assert getattr(record.from_environment({variable: text}), name) is value
    for name in (*switches, *numbers):
        for variable in variables_of_field(package, name)[:1]:
            assert record.from_environment({variable: ""}) == record()
            for text in ("perhaps", "2x", "-5"):
                with pytest.raises((ValueError, TypeError), match=f"{variable}={text!r}: expected"):
                    record.from_environment({variable: text})
        with pytest.raises((ValueError, TypeError), match=f"{name}='no': expected"):
            record(**{name: "no"})


def test_options_reach_the_stage_that_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A given option goes before the variable, also where it is the default; one that was not given leaves it alone."""
    monkeypatch.setenv("FLAMBEAU_INDUCTOR_EPILOGUE_FUSION", "0")
    monkeypatch.setenv("FLAMBEAU_EXECUTOR", "python")
    plain = resolve_stages(Options())
    assert (plain.inductor.epilogue_fusion, plain.runtime.executor) == (False, "python")
    given = resolve_stages(Options({"epilogue_fusion": True, "executor": "native", "activation_memory_budget": 0}))
    assert (given.inductor.epilogue_fusion, given.runtime.executor, given.autograd.activation_memory_budget) == (
        True,
        "native",
        0.0,
    )


@pytest.mark.parametrize(
    "name", ["max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning"]
)
def test_measurement_is_asked_for_and_can_be_forbidden(name: str) -> None:
    asked = resolve_stages(Options({name: True})).inductor
    assert getattr(asked, name) is True and asked.autotune_local_cache
    assert getattr(resolve_stages(Options()).inductor, name) is False
    forbidden = resolve_stages(Options({name: True, "deterministic": True})).inductor
    assert getattr(forbidden, name) is False and not forbidden.autotune_local_cache


def test_without_caches_no_measured_choice_is_read_or_kept() -> None:
    asked = resolve_stages(Options({"max_autotune": True, "force_disable_caches": True})).inductor
    assert asked.max_autotune and not asked.autotune_local_cache


def test_every_option_that_decides_results_decides_the_key() -> None:
    """The same for the options of the api."""
    stages = resolve_stages(Options())
    for spec in OPTIONS.values():
        value = other_value(spec.field)
        if value == spec.default:  # the package's own is another
            value = spec.field.default
        if spec.name in _PASSES:
            with pytest.raises(Uncacheable, match="uuid"):
                key(resolve_stages(Options({spec.name: value})))
            continue
        assert (key(stages, Options({spec.name: value})) != key(stages)) is spec.cached, spec.name


def test_the_mark_of_parameters_reaches_both_halves() -> None:
    """A CUDA graph reads those where they are, in the forward and where the backward gets them from it."""
    with FakeTensorMode():
        weight, x = torch.empty(3, requires_grad=True), torch.empty(3, requires_grad=True)
    graph = fx.Graph()
    first, second = graph.placeholder("weight"), graph.placeholder("x")
    first.meta |= {"val": weight, "static": True}
    second.meta |= {"val": x}
    graph.output((graph.call_function(torch.mul, (first, second)),))
    gm = fx.GraphModule({}, graph)
    prepared = autograd.prepare(gm, [weight, x])
    mark_static(gm, prepared)
    marks = [[node.meta["static"] for node in half.graph.find_nodes(op="placeholder")[:2]] for half in halves(prepared)]
    assert marks == [[True, False], [saved.index == 0 for saved in prepared.signature.saved]] and len(marks[1]) == 2


def halves(prepared: autograd.Prepared) -> list[fx.GraphModule]:
    assert prepared.backward is not None
    return [prepared.forward, prepared.backward]


def test_no_variable_sets_two_fields() -> None:
    """But of the two spellings of one option."""
    every = [variable for at in FIELDS for variable in variables_of_field(*at)]
    assert len(every) == len(set(every)) > 60
