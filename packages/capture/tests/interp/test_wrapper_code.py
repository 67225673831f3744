"""The code of wrapper tensors' classes: what it reads is guarded, and where it has effects, plain Python runs it."""

from __future__ import annotations

import sys

import pytest
import torch
from both_ways import eager, recorded
from torch import Tensor
from torch.utils import _pytree as pytree

from flambeau_capture import make_region

FACTOR = 2.0
TABLE = {"factor": 2.0}
LOG: list[str] = []
COUNT = 0


class Settings:
    factor = 2.0


def times(x):
    """A function of the module, which the class calls."""
    return x * FACTOR


def kept(factor):
    """A function that closes over a number."""
    return lambda x: x * factor


class Held(Tensor):
    """What `compute` makes of a tensor is what every operation is given."""

    @staticmethod
    def __new__(cls, inner):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*pytree.tree_map_only(Held, cls.compute, args), **(kwargs or {}))


class Plain(Held):
    @staticmethod
    def compute(t):
        return times(t.inner)


class OfSettings(Held):
    @staticmethod
    def compute(t):
        return t.inner * Settings.factor


class OfTable(Held):
    @staticmethod
    def compute(t):
        return t.inner * TABLE["factor"]


class OfClass(Held):
    factor = 2.0

    @staticmethod
    def compute(t):
        return t.inner * t.factor


class Closing(Held):
    compute = staticmethod(kept(2.0))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*pytree.tree_map_only(Held, lambda t: cls.compute(t.inner), args), **(kwargs or {}))


class Logging(Held):
    @staticmethod
    def compute(t):
        LOG.append("computed")
        return t.inner * 2


class Counting(Held):
    @staticmethod
    def compute(t):
        global COUNT
        COUNT += 1
        return t.inner * 2


class Printing(Held):
    @staticmethod
    def compute(t):
        print("computed")
        return t.inner * 2


class Marking(Held):
    seen = 0

    @classmethod
    def compute(cls, t):
        Marking.seen += 1
        return t.inner * 2


class Remembering(Held):
    @staticmethod
    def compute(t):
        t.last = 1
        return t.inner * 2


class Object:
    """It may say something else at each call."""

    def factor(self):
        return len(LOG) + 1


OBJECT = Object()


class OfObject(Held):
    @staticmethod
    def compute(t):
        return t.inner * OBJECT.factor()


class Unsaid(Held):
    """It has an attribute of which `__tensor_flatten__` does not tell."""

    factor = 2.0

    @staticmethod
    def compute(t):
        return t.inner * t.factor


CHANGES = {
    "global": (Plain, sys.modules[__name__], "FACTOR", 3.0),
    "attribute of another class": (OfSettings, Settings, "factor", 3.0),
    "member of a dict": (OfTable, sys.modules[__name__], "TABLE", {"factor": 3.0}),
    "own class": (OfClass, OfClass, "factor", 3.0),
    "closure": (Closing, Closing, "compute", staticmethod(kept(3.0))),
    "function": (Plain, sys.modules[__name__], "times", lambda x: x + 1),
    "method": (Plain, Plain, "compute", staticmethod(lambda t: t.inner - 1)),
    "dispatch": (Plain, Plain, "__torch_dispatch__", classmethod(lambda cls, func, types, args=(), kwargs=None: func(args[0].inner))),
}  # fmt: skip


def program(x):
    return x.sin()


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_code_reads_is_guarded(change, monkeypatch):
    cls, owner, name, value = CHANGES[change]
    graphs = []
    region = recorded(program, graphs)
    for _ in range(2):
        assert torch.equal(region(cls(torch.ones(2))), program(cls(torch.ones(2))))
    assert len(graphs) == 1
    monkeypatch.setattr(owner, name, value)
    before = program(cls(torch.ones(2)))
    assert torch.equal(region(cls(torch.ones(2))), before) and len(graphs) == 2


def test_a_table_that_is_written(monkeypatch):
    region = recorded(program, [])
    region(OfTable(torch.ones(2)))
    monkeypatch.setitem(TABLE, "factor", 5.0)
    assert torch.equal(region(OfTable(torch.ones(2))), torch.full((2,), 5.0).sin())


def breaks(x):
    """The codes of what breaks the graph; each call gives what plain Python does."""
    records = []
    region = make_region(program, eager, observer=records.append)
    for _ in range(3):
        LOG.clear()
        found = region(x)
        LOG.clear()
        assert torch.equal(found, program(x))
    LOG.clear()
    return {found.code for record in records for found in record.breaks}


@pytest.mark.parametrize("cls", [Logging, Counting, Printing, Marking, Remembering, OfObject])
def test_code_with_effects_is_left_to_plain_python(cls):
    assert "unsupported-tensor" in breaks(cls(torch.ones(2)))


def test_effects_are_seen_at_each_call():
    region = recorded(program, [])
    LOG.clear()
    for _ in range(3):
        region(Logging(torch.ones(2)))
    assert LOG == ["computed"] * 3


def test_an_attribute_that_is_not_told_of():
    x = Unsaid(torch.ones(2))
    assert not breaks(x)
    x.factor = 3.0
    assert "unsupported-tensor" in breaks(x)
