"""Tensors of subclasses that a program makes by calling the class."""

from __future__ import annotations

import pytest
import torch
from both_ways import recorded
from torch import Tensor


class Alias(Tensor):
    pass


class ByAlias(Tensor):
    @staticmethod
    def __new__(cls, data, note=None):
        return data.as_subclass(cls)

    def __init__(self, data, note=None):
        self.note = note


class BySuper(Tensor):
    def __new__(cls, data, note=3):
        made = super().__new__(cls, data)
        made.note = note
        return made


class Detached(Tensor):
    def __new__(cls, data, note=3):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, note=3):
        self.note = note


@pytest.mark.parametrize("cls", [Alias, ByAlias, BySuper, Detached])
@pytest.mark.parametrize("grad", [True, False])
def test_a_class_that_is_called(cls, grad):
    def program(x):
        made = cls(x, note="a") if cls is not Alias else cls(x)
        return made, made * 2, made.is_leaf, x

    for call in (recorded(program, [], fullgraph=True),) * 2:
        found, wanted = (
            (made, vars(made), type(double), double.requires_grad, leaf, made.data_ptr() == x.data_ptr(), made.tolist())
            for made, double, leaf, x in (each(torch.ones(3, requires_grad=grad)) for each in (call, program))
        )
        assert type(found[0]) is type(wanted[0]) is cls
        assert (found[0].requires_grad, found[0].is_leaf) == (wanted[0].requires_grad, wanted[0].is_leaf)
        assert found[1:] == wanted[1:]


def test_what_torch_reads_numbers_for_breaks(broken):
    assert "unsupported-call" in broken(lambda x: (x + 1, Alias([1.0, 2.0]).sum() + 1)[0])
