"""The operator module."""

from __future__ import annotations

import operator
import types

import numpy
import pytest
import torch
from both_ways import assert_equal, eager, outcome

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


@pytest.mark.parametrize("other", [numpy.int64(1), numpy.float32(1), numpy.ones(2, dtype=numpy.float32), len, max])
@pytest.mark.parametrize("symbol", ["==", "!=", "<", "in"])
def test_what_a_tensor_may_compare_with(other, symbol):
    """Numbers and arrays of NumPy have an `==` of their own; a function has no place in a graph."""
    scope = {"other": other}
    exec(f"def run(x):\n    return x + 1, x {symbol} {'[other]' if symbol == 'in' else 'other'}", scope)
    x = torch.ones(2)
    assert_equal(outcome(make_region(scope["run"], eager), x), outcome(scope["run"], x))


def test_methods_that_are_given_a_function():
    def run(x):
        return x + 1, x.__lt__(len), x.__radd__(max)

    x = torch.ones(2)
    assert_equal(outcome(make_region(run, eager), x), outcome(run, x))


CALLS_OF_METHODS = (
    "x.__len__(1)", "x.__iter__(0, 1)", "x.size(0, 1)", "x.size(1.0)", "x.size(dim=5)", "x.size(d=0)", "x.stride(0, 1)", "x.stride(None)", "x.sum().size(0)",
    "torch.Tensor.__repr__(x)", "torch.Tensor.__len__(x)", "torch.Tensor.__len__(x, 1)", "type(x).__format__(x.sum(), '.2f')", "torch.Tensor.tolist(x)",
    "torch.Tensor.__deepcopy__(x, {})", "x._reduce_ex_internal(4)[0].__name__", "torch.Tensor.__lt__(x, 'a')",
)  # fmt: skip


@pytest.mark.parametrize("text", CALLS_OF_METHODS)
def test_methods_of_tensors_with_any_arguments(text):
    """By the class as by the tensor, and with what they do not take: a text is of the tensor, not of its fake."""
    scope = {"torch": torch}
    exec(f"def run(x):\n    return x + 1, {text}", scope)
    x = torch.ones(2)
    assert_equal(outcome(make_region(scope["run"], eager), x), outcome(scope["run"], x))


@pytest.mark.parametrize(
    "items",
    ["[n, 2]", "(i for i in (n, 2))", "[n > 1, 2]", "[n / 2]", "[2**40, n]", "[n, None]", "iter([1.5])", "{1: n}"],
)
def test_sizes_that_are_made(items):
    """Of whole numbers alone: a symbolic number may be none."""
    scope = {"torch": torch}
    exec(
        f"def run(x, n):\n    try:\n        made = torch.Size({items})\n    except Exception as error:\n        return str(error), x + 1\n"
        "    return made, made.numel(), x + 1",
        scope,
    )
    region = make_region(scope["run"], eager, dynamic=True)
    x = torch.ones(2)
    for n in (2, 3, 4.0):
        assert_equal(outcome(region, x, n), outcome(scope["run"], x, n))
