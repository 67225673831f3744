"""Numbers that Python computes from one number of the caller's: what is computed alike has one source, which a guard asks once."""

from __future__ import annotations

import math
import operator

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region
from flambeau_capture.interp.formulas import combined, source_of
from flambeau_capture.sources.source import Local
from flambeau_capture.values.constants import ConstantValue
from flambeau_capture.values.symbolic import SymbolicValue, formula_of_input


def number(name: str, value: float) -> SymbolicValue:
    """A number of the caller's, as far as formulas ask."""
    source = Local(name)
    made = SymbolicValue(None, None, source)
    made.formula = formula_of_input(source, value)
    return made


def test_what_is_computed_alike_has_one_source():
    x = number("x", 0.5)
    twice = [combined(math.sin, [x]) for _ in range(2)]
    assert source_of(twice[0]) is source_of(twice[1])
    deeper = []
    for formula in twice:
        inner = SymbolicValue(None, None, None)
        inner.formula = formula
        deeper.append(combined(operator.add, [inner, ConstantValue(1)]))
    assert source_of(deeper[0]) is source_of(deeper[1])
    assert deeper[0].function(0.25) == math.sin(0.25) + 1


@pytest.mark.parametrize("constants", [(0, 0.0), (0.0, -0.0), (1, True), ((1,), (1.0,))])
def test_constants_that_are_equal_and_not_the_same_stay_apart(constants):
    sources = [source_of(combined(lambda x, c: repr(c) < "x", [number("x", 2.0), ConstantValue(c)])) for c in constants]
    assert sources[0] is not sources[1]


def test_other_functions_numbers_and_orders_stay_apart():
    x, y, two = number("x", 0.5), number("y", 0.5), ConstantValue(2)
    formulas = [
        combined(*given)
        for given in (
            (operator.sub, [x, two]), (operator.sub, [two, x]), (operator.sub, [y, two]), (operator.add, [x, two]), (operator.sub, [x, x]),
        )
    ]  # fmt: skip
    sources = [source_of(formula) for formula in formulas]
    assert len(set(map(id, sources))) == 5
    assert [formula.function(0.5) for formula in formulas] == [-1.5, 1.5, -1.5, 2.5, 0.0]


def test_a_question_that_is_repeated_is_one_guard():
    def function(x, scale):
        for _ in range(5):
            if scale != 0:
                x = x * scale
        return x

    asked = []

    def keep_all(entries):
        asked.append([entry.name for entry in entries if entry.name.startswith("ne(")])
        return [True] * len(entries)

    region = make_region(function, eager, dynamic=True, guard_filter_fn=keep_all)
    x = torch.ones(2)
    for scale in (0.5, 0.25, 0.0):
        assert torch.equal(region(x, scale), function(x, scale))
    assert asked == [["ne(scale, 0)"]] * 2
