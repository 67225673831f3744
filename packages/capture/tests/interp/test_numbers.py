"""Operators and functions on symbolic integers, truth values and constants of every kind: value, class, error, and nothing logged by torch.

In: every expression over these operands. Out: a quick slice of them, all of them where slow tests run.
"""

from __future__ import annotations

import copy
import itertools
import logging
import random
import warnings
from decimal import Decimal
from fractions import Fraction
from operator import is_, is_not

import numpy
import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

OPERATORS = (
    "+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "<", "<=", "==", "!=", ">", ">=", "is", "and", "or",
)  # fmt: skip
SYMBOLIC = ("n", "(n > 2)", "(~n)", "(not n)", "(n / 2)", "(n == m)")
OTHERS = (
    "True", "False", "n", "m", "(n > 2)", "2", "1.5", "0", "b", "(-2)", "(3+0j)", "1j", "Decimal(3)", "Fraction(7, 2)", "numpy.int64(4)", "'3'", "None",
)  # fmt: skip
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
        scope = {"torch": torch, "numpy": numpy, "Decimal": Decimal, "Fraction": Fraction}
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


def test_what_graphs_hold_no_numbers_for(caplog):
    """Complex numbers equal others, and numbers of libraries have a say of their own; text has no arithmetic."""
    _check(
        ["n == (3+0j)", "(3+0j) != n", "n in (3+0j, 1)", "n == Decimal(3)", "(n / 2) == 1.5+0j", "numpy.int64(3) == n", "n ** 1j", "n ** '3'",
         "t == numpy.float32(1)"],
        caplog,
    )  # fmt: skip


def test_a_negative_base_keeps_its_sign(caplog):
    """A printed graph says `-2 ** n` for the operator, which is another number."""
    _check(["(-2) ** t", "(-2.5) ** t", "(-2j) ** t", "(-2) ** n", "(~n) ** m", "t ** -2", "-t**2"], caplog)


IDENTICAL = (
    "2 is n", "n is 2", "t.shape[0] is 2", "n is t.shape[0]", "t.shape[0] is t.shape[0]", "n + 1 is 3", "-n is -n", "copy.copy(n) is 2", "is_(n, 2)", "is_not(n, 2)", "n is 2.0",
    "n is None", "n * 200 is n * 200", "n * 200 is 400", "n / 2 is n / 2", "n / 2 is 1.0", "n is n", "n / 2 is m", "held.a is held.b", "held.a is held.a", "held.c is held.c", "[n * 200 is v for v in [n * 200]]", "nan in [nan]", "[nan] == [nan]", "n in [1, 2]",
)  # fmt: skip


class _Held:
    a = b = 400
    c = 2.5


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("text", IDENTICAL)
def test_which_numbers_are_one_object(text, dynamic):
    """Python has one object of each small integer, of others as many as were made."""
    scope = {"copy": copy, "is_": is_, "is_not": is_not, "held": _Held(), "nan": float("nan")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `is` with a literal
        exec(f"def f(t, n, m):\n    found = {text}\n    return found, t + 1", scope)
        region = make_region(scope["f"], eager, dynamic=dynamic)
        for n, size in ((2, 2), (2, 3), (3, 2), (5, 2), (2, 2), (500, 3)):
            call = (torch.ones(size), n, n / 2)
            assert_equal(outcome(region, *call), outcome(scope["f"], *call))


def _extremes(x, n, m):
    for _ in range(60):
        n, m = m, max(n, m) - min(n, m) // 2
    return x + n, m


def _of_one_number(x, n, m):
    for _ in range(60):
        n = n + n - n + 1
    return x + n, m


@pytest.mark.parametrize("rounds", [_extremes, _of_one_number])
def test_numbers_that_double_their_expression(rounds):
    """After some rounds they are fixed, each call has its own, and each round takes as long as the one before."""
    region = make_region(rounds, eager, dynamic=True)
    for n, m in ((3, 50), (40, 7), (3, 50)):
        assert_equal(region(torch.ones(2), n, m), rounds(torch.ones(2), n, m))
