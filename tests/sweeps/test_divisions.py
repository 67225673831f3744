"""Divisions and remainders of integers, by tensors and by numbers: eager's values, and eager's error where a divisor is zero, in every type.

Lengths are those of a vector and a rest, static and symbolic; a result may be read in part, in a branch of `where`, or not at all. The lowest
number over -1 is left out: eager itself may die of it. One program of 97 in CI, all under `slow`.
"""

from __future__ import annotations

import itertools

import pytest

from .examine import examine_text

_DIVISIONS = ("torch.div({a}, {b}, rounding_mode='trunc')", "{a} // {b}", "{a} % {b}", "torch.fmod({a}, {b})")
#: How a quotient is used.
_USES = (
    "{quotient} + 1",
    "torch.where({b} != 0, {quotient}, 0)",
    "F.pad({quotient}, (2, 1)) * 2",
    "torch.cat([{a} * 2, {quotient}]).flip(0)[:5]",
    "({quotient}, {a} * 3)[1]",
)
_DIVISORS = ("b", "b[:1]", "7", "-3", "256", "0", "a.shape[0]", "(a.shape[0] - 8)")
_TYPES = ("uint8", "int8", "int16", "int32", "int64")
PROGRAMS = list(itertools.product(_DIVISIONS, _USES, _DIVISORS, _TYPES))
_BODY = """
def f(a, b):
    return {result}

def drive(compile, call, show, backward):
    g = compile(f)
    for length, zero in ((37, None), (37, 36), (8, None), (8, 0)):
        a, b = (torch.arange(length) * 37 % 11 - 5).to(torch.{dtype}), (torch.arange(length) % 3 + 1).to(torch.{dtype})
        if zero is not None:
            b[zero] = 0
        call(g, a, b)
"""


@pytest.mark.parametrize("backend", ["inductor", "lowered"])
@pytest.mark.parametrize("part", [0, *(pytest.param(p, marks=pytest.mark.slow) for p in range(1, 97))])
def test_divisions_are_those_of_eager(backend: str, part: int) -> None:
    graphs = 0
    for division, use, b, dtype in PROGRAMS[part::97]:
        result = use.format(quotient=division.format(a="a", b=b), a="a", b=b)
        source = _BODY.format(result=result, dtype=dtype)
        verdict = examine_text(source, backend)
        assert verdict.failure is None and not verdict.broken, f"{verdict}\nbackend={backend!r}\n{source}"
        graphs += verdict.graphs
    assert graphs > 4
