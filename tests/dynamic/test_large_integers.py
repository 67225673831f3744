"""Integers beyond 64 bits: Python's are unbounded, so what a graph or a guard could not hold is left to Python, as a constant."""

from __future__ import annotations

import pytest
import torch

import flambeau


def _branch(t, n):
    return (t * 2, n + 1) if n * n * n > 5 else (t * 3, n - 1)


def _loop(t, n):
    total = 0
    for _ in range(4):
        total = total * 1000003 + n
    return -t, total


def _sum(t, n):
    total = sum(v * n for v in (n, n, n, n))
    return -t, total * total, total + n


PROGRAMS = {
    "power returned": lambda t, n: (-t, n * n * n * n * n),
    "power in a tensor": lambda t, n: -t + n * n * n * n * n,
    "constant factors": lambda t, n: (-t, n * 10**12 * 10**12),
    "remainder": lambda t, n: (-t, (n * n * n * n * n) % 7, n**9),
    "shift": lambda t, n: (-t, n << 40, (n << 40) >> 38, n // 3),
    "branch": _branch,
    "with a size": lambda t, n: (-t, (t.shape[0] * n) * n * n, n / 3, float(n)),
    "loop": _loop,
    "sums of products": lambda t, n: (-t, (n * n + n) + (n * n - 1) + 2 * n * n),
    "powers of sums": _sum,
}
VALUES = (
    (2, 3, 10**5, 10**3, 7),
    (3, 10**10, 10**12, 5, 4),
    (663562730850, 663562730851, 3, 5, 2**40),
    (2**62, 2**63 - 1, 5, 10**30),
    (-5, -(2**63), -(2**62), 6, 4),
    (2**31, 2**31 - 1, 2**32),
)


@pytest.mark.parametrize("dynamic", [True, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_integers_are_unbounded(name, dynamic):
    program, t = PROGRAMS[name], torch.ones(3, dtype=torch.float64)
    for values in VALUES:
        compiled = flambeau.compile(program, dynamic=dynamic)
        for n in values:
            try:
                expected = program(t, n)
            except OverflowError as error:
                with pytest.raises(OverflowError, match=str(error)):
                    compiled(t, n)
            else:
                found = compiled(t, n)
                assert [type(part) for part in found] == [type(part) for part in expected]
                assert str(found) == str(expected)
