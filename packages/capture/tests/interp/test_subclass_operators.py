"""Operators that classes of tensors define themselves, in Python's order."""

from __future__ import annotations

import operator

import pytest
import torch
from both_ways import recorded
from torch import Tensor


class Left(Tensor):
    def __add__(self, other):
        return "left +"

    def __radd__(self, other):
        return "left r+"

    def __lt__(self, other):
        return NotImplemented

    def __neg__(self):
        return "left -"

    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def __eq__(self, other):
        return "left =="

    def __len__(self):
        return 99

    def __iadd__(self, other):
        return "left +="

    def sin(self):
        return super().sin() + 5

    __hash__ = Tensor.__hash__


class Below(Left):
    def __radd__(self, other):
        return "below r+"

    def __add__(self, other):
        return NotImplemented


class Plain(Tensor):
    pass


def _told(value):
    return (type(value), value.as_subclass(Tensor).tolist()) if isinstance(value, Tensor) else value


@pytest.mark.parametrize(
    "function", [operator.add, operator.iadd, operator.lt, operator.eq, operator.mul, operator.matmul]
)
@pytest.mark.parametrize(
    "classes",
    [(Left, Tensor), (Tensor, Left), (Left, Below), (Below, Left), (Plain, Left), (Left, Left), (Below, Below)],
)
def test_two_operands(function, classes):
    def outcome(call):
        try:
            return _told(call(*(torch.ones(2, 2).as_subclass(cls) for cls in classes)))
        except TypeError:
            return TypeError

    assert outcome(recorded(lambda a, b: function(a, b), [])) == outcome(function)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: -x,
        lambda x: x[0],
        lambda x: len(x),
        lambda x: 1 + x,
        lambda x: abs(x),
        lambda x: x.sin(),
        lambda x: ~(x > 0),
    ],
)
def test_one_operand(program):
    x = torch.ones(2, 2).as_subclass(Left)
    assert _told(recorded(program, [], fullgraph=True)(x)) == _told(program(x))
