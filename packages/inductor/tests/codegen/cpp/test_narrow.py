"""What is held as int32 fits int32: the range of every op against all of its corners, and the ends of the range itself."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from flambeau_inductor.codegen.cpp.narrow import fits_int32, interval
from flambeau_inductor.expr import Int, Symbol
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.scalar import Scalar
from flambeau_inductor.ops.table import scalar_op

LIMIT = 2**31 - 1
RANGES = [(0, 9), (-7, 5), (-4, -2), (3, 3)]
I64 = torch.int64


def within(name: str, low: int, high: int) -> Scalar:
    """A position of this range."""
    return sc._intern("index", (Symbol(name, low, high),), I64)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "maximum", "minimum", "neg", "where"])
def test_the_range_of_an_op_holds_all_its_results(name: str) -> None:
    """And no more than they take: the least and the greatest are reached."""
    for one, other in product(RANGES, RANGES):
        parts = [within("i", *one), within("j", *other)][: 1 if name == "neg" else 2]
        condition = [sc.load("c", Int(0), torch.bool)] if name == "where" else []
        node = sc._intern("op", (name, *condition, *parts), I64)
        points = [torch.tensor(p) for p in product(range(one[0], one[1] + 1), range(other[0], other[1] + 1))]
        if name == "where":
            results = [int(part) for point in points for part in point]
        else:
            reference = scalar_op(name).reference
            results = [int(reference(*point[: len(parts)], dtype=I64)) for point in points]
        assert interval(node) == (min(results), max(results)), (name, one, other)


@pytest.mark.parametrize(
    ("node", "fits"),
    [
        (sc.constant(LIMIT, I64), True),
        (sc.constant(LIMIT + 1, I64), False),
        (sc.constant(-LIMIT, I64), True),
        (sc.constant(-LIMIT - 1, I64), False),
        (within("i", 0, LIMIT), True),
        (within("i", -1, LIMIT + 1), False),
        (sc.constant(1, torch.int32), False),
        (sc.load("x", Int(0), I64), False),
        (sc._intern("op", ("add", within("i", 0, LIMIT), sc.constant(1, I64)), I64), False),
        (sc._intern("op", ("bitwise_and", within("i", 0, 1), within("j", 0, 1)), I64), False),
        (sc._intern("op", ("add", sc.load("x", Int(0), I64), within("j", 0, 1)), I64), False),
    ],
    ids=str,
)
def test_the_ends(node: Scalar, fits: bool) -> None:
    """One beyond either end does not fit; nor does what has no known range, at the top or below."""
    assert fits_int32(node) is fits
