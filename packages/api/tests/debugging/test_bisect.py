"""The search for the stage at fault, with programs that are wrong by decree."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from flambeau.debugging.bisect import Finding, bisect
from flambeau.debugging.overrides import rules
from flambeau.errors import InvalidOption

_BACKENDS = ("eager", "aot_eager", "aot_eager_decomp_partition", "loops")


def _search(
    *,
    first_wrong: str = "",
    cured_by: tuple[str, str] = ("", ""),
    graph: int = 0,
    operation: int = 1,
    always: bool = False,
) -> Finding:
    """A program of eight graphs: `first_wrong` is the first backend with which it is wrong, `cured_by` a variable and a word in it."""

    def test(environment: Mapping[str, str]) -> bool:
        if environment.get("FLAMBEAU_DISABLE") == "1":
            return not always
        for rule in rules(environment.get("FLAMBEAU_OVERRIDE_BACKENDS", "")):
            if graph in rule and rule.value in _BACKENDS:
                wrong = _BACKENDS.index(first_wrong) if first_wrong else len(_BACKENDS)
                if _BACKENDS.index(rule.value) < wrong:
                    return True
        name, word = cured_by
        text = environment.get(name, "")
        if name and name != "FLAMBEAU_DISABLED_PASSES":
            return word == text
        for part in filter(None, text.split(",")):
            switch, _, count = part.partition(">")
            if switch == word and (not count or int(count) < operation):
                return True
        return False

    return bisect(test)


def test_a_program_that_is_right() -> None:
    assert bisect(lambda environment: True).stage == "nothing"


def test_a_program_that_is_wrong_by_itself() -> None:
    assert _search(always=True).stage == "the program"


@pytest.mark.parametrize(
    ("backend", "stage"),
    [("eager", "capture"), ("aot_eager", "autograd"), ("aot_eager_decomp_partition", "decomposition")],
)
def test_the_backend_says_how_far_it_is_right(backend: str, stage: str) -> None:
    assert _search(first_wrong=backend).stage == stage


def test_a_pass_of_autograd() -> None:
    found = _search(first_wrong="aot_eager", cured_by=("FLAMBEAU_DISABLED_JOINT_PASSES", "no_ops"))
    assert (found.stage, found.detail) == ("autograd", "no_ops")


@pytest.mark.parametrize(
    ("variable", "value", "stage"),
    [
        ("FLAMBEAU_FORCE_DISABLE_CACHES", "1", "cache"),
        ("FLAMBEAU_CUDAGRAPHS", "0", "CUDA graphs"),
        ("FLAMBEAU_EXECUTOR", "python", "executor"),
        ("FLAMBEAU_DISABLED_PASSES", "memory", "memory plan"),
        ("FLAMBEAU_DISABLED_PASSES", "splitting", "splitting of reductions"),
        ("FLAMBEAU_DISABLED_PASSES", "combining", "combining of launches"),
        ("FLAMBEAU_DISABLED_PASSES", "fusion", "fusion"),
    ],
)
def test_what_is_left_out_alone(variable: str, value: str, stage: str) -> None:
    found = _search(cured_by=(variable, value))
    assert found.stage == stage
    assert found.setting == {variable: value}


def test_a_pass_and_a_rewrite_of_the_joint_graph() -> None:
    found = _search(cured_by=("FLAMBEAU_DISABLED_PASSES", "batch_products"))
    assert (found.stage, found.detail) == ("passes", "batch_products")
    found = _search(cured_by=("FLAMBEAU_DISABLED_PASSES", "joint_open_softmaxes"))
    assert (found.stage, found.detail) == ("joint passes", "joint_open_softmaxes")


@pytest.mark.parametrize(("loops", "stage"), [("loops", "lowering"), ("", "code generation")])
def test_lowering_and_code_generation(loops: str, stage: str) -> None:
    """The interpreter of the loops tells them apart; the operation is found by halves."""
    found = _search(first_wrong=loops, cured_by=("FLAMBEAU_DISABLED_PASSES", "lowering"), operation=13)
    assert found.stage == stage
    assert found.detail == "operation 13 of its graph"


@pytest.mark.parametrize(
    ("value", "operation", "stage"),
    [("fusion", 1, "fusion"), ("memory", 1, "memory plan"), ("lowering", 3, "code generation")],
)
def test_slow_programs(value: str, operation: int, stage: str) -> None:
    """Backends that stop early are not asked: what they leave to eager is slow for reasons of its own."""

    def test(environment: Mapping[str, str]) -> bool:
        assert "eager" not in environment.get("FLAMBEAU_OVERRIDE_BACKENDS", "").removeprefix(">=1:eager")
        for part in filter(None, environment.get("FLAMBEAU_DISABLED_PASSES", "").split(",")):
            switch, _, count = part.partition(">")
            if switch == value and (not count or int(count) < operation):
                return True
        return environment.get("FLAMBEAU_DISABLE") == "1"

    assert bisect(test, slow=True).stage == stage


def test_several_that_are_needed_together() -> None:
    """Leaving out either is not enough: both are named, and what leaves out both is the setting."""

    def test(environment: Mapping[str, str]) -> bool:
        left_out = environment.get("FLAMBEAU_DISABLED_PASSES", "").split(",")
        early = environment.get("FLAMBEAU_OVERRIDE_BACKENDS", "").startswith(">=0:")
        return environment.get("FLAMBEAU_DISABLE") == "1" or early or {"fusion", "memory"} <= set(left_out)

    found = bisect(test)
    assert set(found.stage.split(", ")) == {"fusion", "memory plan"}
    assert set(found.setting["FLAMBEAU_DISABLED_PASSES"].split(",")) == {"fusion", "memory"}


def test_the_graph_is_named() -> None:
    assert _search(cured_by=("FLAMBEAU_EXECUTOR", "python"), graph=5).graph == 5


def test_rules_of_graphs() -> None:
    found = rules("0-3,7:eager; >=9:aot_eager")
    assert [rule.value for rule in found] == ["eager", "aot_eager"]
    assert [n for n in range(12) if n in found[0]] == [0, 1, 2, 3, 7]
    assert [n for n in range(12) if n in found[1]] == [9, 10, 11]
    for wrong in ("eager", "0:", "x:eager", "3-:eager"):
        with pytest.raises(InvalidOption, match="is no rule"):
            rules(wrong)
