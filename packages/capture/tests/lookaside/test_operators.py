"""The operator module."""

from __future__ import annotations

import operator
import types

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

EXPRESSIONS = {
    "binary": lambda x: (operator.add(x, 1), operator.floordiv(7, 2), operator.matmul(x, x.T), operator.concat([1], [2])),
    "inplace": lambda x: (operator.iadd([1], [2]), operator.imul(x.clone(), 2)),
    "compare": lambda x: (operator.lt(1, 2), operator.eq([x.dim()], [2]), operator.ge(x, 0)),
    "unary": lambda x: (operator.neg(x), operator.not_([]), operator.truth([1]), operator.index(3), operator.invert(5)),
    "identity": lambda x: (operator.is_(x, x), operator.is_not(x, None)),
    "items": lambda x: (operator.getitem([1, x], 1), operator.contains("abc", "b"), operator.setitem({}, 1, 2)),
    "itemgetter": lambda x: (operator.itemgetter(1)([0, x]), operator.itemgetter("a", "b")({"a": 1, "b": x})),
    "attrgetter": lambda x: (operator.attrgetter("shape")(x), operator.attrgetter("a.b")(types.SimpleNamespace(a=types.SimpleNamespace(b=x)))),
    "methodcaller": lambda x: operator.methodcaller("sum", dim=0)(x),
    "sorting": lambda x: (sorted([(2, "a"), (1, "b")], key=operator.itemgetter(0)), x),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_same_as_the_module(name, check):
    """Table of expressions."""
    check(EXPRESSIONS[name])


def test_a_getter_that_is_returned_is_one():
    """It is made again, of the real class."""

    def make(x):
        return operator.itemgetter(0), x + 1

    getter, _ = make_region(make, eager)(torch.ones(2))
    assert type(getter) is operator.itemgetter
    assert getter("ab") == "a"
