"""Python that a trace goes through without a break: errors that are caught, special methods, instances of builtin classes, results as in Python."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager

from flambeau_capture import make_region


class Bare:
    pass


class Word(str):
    __slots__ = ()


class Octets(bytes):
    __slots__ = ()


class Row(tuple):
    __slots__ = ()


def _told(ask, *args):
    """The words of what `ask` raises."""
    try:
        return ask(*args)
    except (TypeError, AttributeError, ValueError) as error:
        return type(error).__name__, str(error)


def what_objects_lack(x):
    return x + 1, [_told(ask, Bare()) for ask in (len, iter, lambda b: b[0], lambda b: b())]


def comparisons_that_raise(x):
    return x + 1, _told(lambda: 1 < "a"), _told(lambda: [1] >= (2,)), _told(lambda: None <= 3)


def fields_of_an_exception(x):
    error, other = ValueError(1, 2), KeyError("k")
    error.args = (3,)
    error.__cause__ = other
    error.code = 7
    return x + error.args[0], error.code, error.__cause__ is other, error.args


def comparisons_with_a_subclass(x, p=torch.nn.Parameter(torch.arange(6.0).view(3, 2).t(), requires_grad=False)):  # noqa: B008 - one parameter for both
    return x < p, x <= p, x == p, x != p, x > p, x >= p, p < x, p >= x


WORD, OCTETS, ROW = Word("ab"), Octets(b"cd"), Row((1, 2.5, "c"))


def instances_of_builtin_classes(x):
    made = [Word("xyz"), Octets(b"uv"), Row((3, 4)), WORD, OCTETS, ROW]
    seen = [[*one] for one in made]
    first, second = Word("pq")
    return x + len(seen), seen, list(zip(WORD, ROW)), first + second, max(Row((1, 5)))


@pytest.mark.parametrize(
    "function",
    [
        what_objects_lack, comparisons_that_raise, fields_of_an_exception, comparisons_with_a_subclass, instances_of_builtin_classes,
    ],
)  # fmt: skip
def test_as_in_python_without_a_break(function):
    """`fullgraph` raises for a break; the second call comes from the entry."""
    x = torch.arange(6.0).flip(0).view(2, 3)
    region = make_region(function, eager, fullgraph=True)
    for _ in range(2):
        assert_equal(region(x), function(x))
