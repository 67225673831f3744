"""Arithmetic with numbers at the border of what graphs hold: beyond 64 bits, infinities, not a number, results that overflow, Python's errors.

In: operators and functions of `math`, numbers for several calls of one compiled function. Out: values, classes and errors as plain Python's,
at every call: what an entry was compiled for says nothing of the numbers that come next.
"""

from __future__ import annotations

import math
import operator
import random
import sys

import pytest
import torch
from both_ways import eager, outcome, recorded

from flambeau_capture import make_region

BINARY = (
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lshift, operator.rshift,
    operator.and_, operator.or_, operator.xor, operator.lt, operator.le, operator.eq, divmod, pow, max, min, round, math.fmod, math.atan2,
    math.hypot, math.gcd, math.copysign, math.ldexp, math.comb, math.perm, math.remainder, math.isclose, math.log, math.nextafter,
)  # fmt: skip
UNARY = (
    operator.neg, operator.invert, operator.not_, int, float, bool, round, abs, complex, math.floor, math.ceil, math.trunc, math.sqrt, math.exp,
    math.log, math.expm1, math.factorial, math.isqrt, math.isnan, math.isinf, math.frexp, math.modf, math.sinh, math.gamma, math.lgamma,
    math.log2, math.ulp, math.sin, math.tan, math.acos, str, repr,
)  # fmt: skip
SMALL = (
    0, 1, -1, 2, 3, -7, 5000, -5000, 0.0, -0.0, 0.5, -2.5, 7.0, True, False, 1e308, -1e308, math.inf, -math.inf, math.nan, 1e-320,
)  # fmt: skip
LARGE = (2**31, 2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**64, 10**30, 10**400)
#: Functions whose second operand decides how long Python itself computes, or how much memory that takes.
GROWING = (operator.pow, pow, operator.lshift, math.comb, math.perm, math.ldexp, round)


def _numbers(draw: random.Random, function: object) -> tuple[object, object]:
    if function is math.factorial:
        return draw.choice((0, 3, -1, 2.5, 20, 30)), 0
    if function in GROWING:
        return draw.choice(SMALL), draw.choice((0, 1, -1, 2, 3, -7, 70, 5000, 0.5, -2.5, 0.0, math.inf, math.nan, True))
    return draw.choice(SMALL + LARGE), draw.choice(SMALL + LARGE)


def _text(result: object) -> str:
    """What tells nan from nan, -0.0 from 0.0 and True from 1."""
    return repr(result)


def _program(seed: int) -> None:
    draw = random.Random(seed)
    binary = draw.random() < 0.7
    function = draw.choice(BINARY if binary else UNARY)
    calls = [_numbers(draw, function) for _ in range(4)]
    left, right = draw.choice((("a", "b"), ("a", "b"), ("fixed", "b"), ("a", "fixed"), ("(a + 1)", "b")))
    fixed = calls[0][0 if left == "fixed" else 1]
    if left == "fixed" and function is operator.lshift and fixed in LARGE:
        left = "a"
    arguments = f"{left}, {right}" if binary else left
    scope = {"function": function, "fixed": fixed}
    exec(
        f"def f(t, a, b):\n    try:\n        found = function({arguments})\n    except Exception as e:\n"
        "        found = type(e), str(e)\n    return t + 1, found",
        scope,
    )
    region = make_region(scope["f"], eager, dynamic=draw.choice((True, None)))
    t = torch.ones(2)
    for a, b in calls + calls[::-1]:
        plain, ours = scope["f"](t, a, b), region(t, a, b)
        assert _text(ours[1]) == _text(plain[1]), (seed, function, arguments, a, b, fixed)


@pytest.fixture(autouse=True)
def _long_texts():
    """Texts of numbers with many digits."""
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("part", range(4))
def test_programs(part):
    for seed in range(part * 60, part * 60 + 60):
        _program(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_programs(part):
    for seed in range(10_000 + part * 1000, 11_000 + part * 1000):
        _program(seed)


FIRST_AND_LATER = (
    ("2.0 ** b", (3, 5000)), ("b ** 0.5", (4, -4)), ("b ** -1", (4, 0)), ("(b * 1.0) ** 500", (2, 1000)), ("b + 0.5", (7, 10**400)),
    ("b / 3", (7, 10**400)), ("b * 1.0 * 1e308", (1, 7)), ("5 >> b", (3, 100, 2**62, -1)), ("1 << b", (3, 70, -1)), ("math.sqrt(b)", (4, -4)),
    ("math.ceil(b * 1e308)", (1, 2, 10)), ("float(b)", (3, 10**400)), ("b * 0.0", (1.5, -1.5, math.inf)), ("b - b", (1.5, math.inf, math.nan)),
    ("b * fixed", (3, 2**61)), ("b ** fixed", (5000, 0)), ("divmod(1.5, b)", (2.5, 0.0)), ("t.sum() * (b * b * b)", (3, 2**50)),
)  # fmt: skip


@pytest.mark.parametrize("text, numbers", FIRST_AND_LATER, ids=[text for text, _ in FIRST_AND_LATER])
def test_numbers_that_the_first_call_did_not_have(text, numbers):
    scope = {"math": math, "fixed": -1}
    exec(f"def f(t, b):\n    return t + 1, {text}", scope)
    graphs: list[torch.fx.GraphModule] = []
    for order in (numbers, numbers[::-1]):
        region = recorded(scope["f"], graphs, dynamic=True)
        t = torch.ones(2)
        for number in order:
            plain, ours = outcome(scope["f"], t, number), outcome(region, t, number)
            assert _text(ours) == _text(plain), (text, number)
    assert graphs
