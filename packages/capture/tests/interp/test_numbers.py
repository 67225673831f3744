"""Operators and functions on symbolic integers, truth values and constants of every kind: value, class, error, and nothing logged by torch.

In: every expression over these operands. Out: a quick slice of them, all of them where slow tests run.
"""

from __future__ import annotations

import itertools
import logging
import random
import warnings

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

OPERATORS = (
    "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">", ">=", "is", "and", "or",
)  # fmt: skip
SYMBOLIC = ("n", "(n > 2)", "(~n)", "(not n)", "(n / 2)", "(n == m)")
OTHERS = ("True", "False", "n", "m", "(n > 2)", "2", "1.5", "0", "b", "(-2)")
FUNCTIONS = (
    "-{}", "+{}", "~{}", "abs({})", "int({})", "float({})", "bool({})", "round({})", "divmod({}, 2)", "str({})", "not {}", "({}).bit_length()",
    "range(5)[int({}) % 3]", "hash({})", "({}, True) == (1, 1)", "{} in (1, True)", "{} is True", "{{1: 2}}.get({})", "sum([{}, True])",
    "isinstance({}, bool)", "type({}).__name__", "f'{{{}}}'", "pow({}, 2)", "pow(2, {})", "any([{}])", "sorted([{}, True, 0])",
    "torch.sym_not({})", "torch.sym_int({})", "t * {}", "t + {}", "{} ** t", "(-2) ** t * {}", "t.new_tensor({})",
)  # fmt: skip


def _expressions():
    for left, right, operator in itertools.product(SYMBOLIC, OTHERS, OPERATORS):
        yield f"{left} {operator} {right}"
        yield f"{right} {operator} {left}"
    for left, right, name in itertools.product(SYMBOLIC, OTHERS, ("max", "min")):
        yield f"{name}({left}, {right})"
        yield f"{name}({right}, {left})"
    for text, operand in itertools.product(FUNCTIONS, (*SYMBOLIC, "b")):
        yield text.replace("{{", "\0").replace("}}", "\1").replace("{}", operand).replace("\0", "{").replace("\1", "}")


EXPRESSIONS = [
    text for text in dict.fromkeys(_expressions()) if not text.startswith(("2 is", "0 is", "1.5 is", "(-2) is"))
]


def _check(expressions, caplog):
    t = torch.ones(3)
    for text in expressions:
        scope = {"torch": torch}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `is` with a literal, `~` of a truth value
            exec(f"def f(t, n, m, b):\n    found = {text}\n    return found, t + 1", scope)
            for calls in ([(3, 4, True), (5, 1, False)], [(True, 2, False)]):
                region = make_region(scope["f"], eager, dynamic=True)
                for numbers in calls:
                    assert_equal(outcome(region, t, *numbers), outcome(scope["f"], t, *numbers))
        logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert not logged, (text, logged)


def test_a_sample_of_expressions(caplog):
    _check(random.Random(0).sample(EXPRESSIONS, 60), caplog)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_every_expression(part, caplog):
    _check(EXPRESSIONS[part::10], caplog)


def test_a_negative_base_keeps_its_sign(caplog):
    """A printed graph says `-2 ** n` for the operator, which is another number."""
    _check(["(-2) ** t", "(-2.5) ** t", "(-2j) ** t", "(-2) ** n", "(~n) ** m", "t ** -2", "-t**2"], caplog)
