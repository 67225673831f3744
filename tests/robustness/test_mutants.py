"""The seeded faults themselves: there are enough, those chosen by hand still fit the sources, and each operator does what it says."""

from __future__ import annotations

import ast

import pytest
from tools.mutants.operators import OPERATORS, Fault, faults_of, mutated
from tools.mutants.run import every_fault, faults_of_slice
from tools.mutants.stages import LEFT_OUT, ROOT, STAGES

SAMPLE = '''
TABLE = {"a": 1, "b": 2, "c": 3}

@lowers("aten.sub")
def difference(x: int, y: int) -> int:
    """Words."""
    found = []
    if x < y:
        raise ValueError("words")
    found.append(x - 1)
    found[0] = y
    return x - y if x and y else found[0]

def is_less(x: int, y: int) -> bool:
    return x < y

def put(x: list) -> None:
    x.clear()
'''
CHANGED = {
    "compare": "if x <= y:",
    "operands": "1 - x",
    "condition": "if not x < y:",
    "connective": "x or y",
    "off_by_one": "x - 2",
    "dropped_call": "pass",
    "dropped_update": "pass",
    "dropped_refusal": "pass",
    "constant_answer": "return True",
    "idle": "return None",
    "stage": "return x",
    "raising": "raise RuntimeError",
    "table_row": "TABLE = {'b': 2, 'c': 3}",
    "unregistered": "\ndef difference",
}


def test_every_operator_is_shown() -> None:
    """The sample below has a place for each."""
    assert set(CHANGED) == set(OPERATORS)


@pytest.mark.parametrize("operator", CHANGED)
def test_an_operator_makes_one_place_wrong(operator: str) -> None:
    """The text of the first fault, which the module did not have before."""
    before = ast.unparse(ast.parse(SAMPLE))
    first = next(fault for fault in faults_of("sample.py", SAMPLE) if fault.operator == operator)
    after = ast.unparse(mutated(first, SAMPLE))
    assert CHANGED[operator] in after
    assert after != before


def test_there_are_enough_and_each_has_one_name() -> None:
    """Two hundred at least, no two alike."""
    faults = every_fault()
    assert len(faults) >= 200
    assert len({fault.key for _, fault in faults}) == len(faults)
    assert all((ROOT / test).exists() for stage in STAGES for test in stage.tests)


def test_every_module_has_one_stage_or_a_reason() -> None:
    """A module that is new gets its place; patterns that fit nothing go."""
    places: dict[str, list[str]] = {}
    patterns = [(pattern, stage.name) for stage in STAGES for pattern in stage.modules] + [
        (pattern, "left out") for pattern in LEFT_OUT
    ]
    for pattern, place in patterns:
        fitting = [str(path.relative_to(ROOT)) for path in (ROOT / "packages").glob(pattern)]
        assert fitting, f"{place}: {pattern}"
        for path in fitting:
            places.setdefault(path, []).append(place)
    assert {path: found for path, found in places.items() if len(found) > 1} == {}
    sources = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "packages").glob("*/src/**/*.py")}
    assert [path for path, text in sources.items() if path not in places and faults_of(path, text)] == []


def test_the_slice_of_ci_fits_the_sources() -> None:
    """Twenty or more, each of another stage."""
    chosen = faults_of_slice()
    assert len({fault.key for _, fault in chosen}) == len(chosen) >= 20
    assert len({stage.name for stage, _ in chosen}) == len(chosen)


def test_faults_chosen_by_hand_fit_the_sources() -> None:
    """Each text stands in its file once, and what it becomes is Python."""
    for _, fault in every_fault():
        if fault.operator == "text":
            mutated(fault, (ROOT / fault.path).read_text())


def test_a_fault_that_fits_no_more_is_an_error() -> None:
    """It must not pass for one that was noticed, nor for one that survived."""
    with pytest.raises(LookupError):
        mutated(Fault("a.py", "f", "text", "absent => present"), "x = 1\n")
    with pytest.raises(LookupError):
        mutated(Fault("a.py", "f", "compare", "a < b -> a <= b"), "x = 1\n")


def test_a_function_without_a_body_has_no_fault() -> None:
    """A protocol's methods are never run."""
    assert not list(
        faults_of(
            "sample.py",
            "class P(Protocol):\n    def holds(self) -> bool: ...\n    def put(self) -> None:\n        'Words.'\n        ...\n",
        )
    )
