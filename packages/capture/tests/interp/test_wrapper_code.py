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


class Listed(Tensor):
    """A base of classes that name their tensors and other attributes in lists, and register in tables what becomes of operations."""

    attributes: list[str] = []
    optional: list[str] = []

    def __init_subclass__(cls):
        cls.table = {}

    @classmethod
    def implements(cls, *operations):
        def register(function):
            def called(func, types, args, kwargs, _function=function):
                return _function(func, types, args, kwargs)

            cls.table.update(dict.fromkeys(operations, called))
            return function

        return register

    def __tensor_flatten__(self):
        names = self.tensors.copy()
        for name in self.optional:
            if getattr(self, name) is not None:
                names.append(name)
        told = {name: getattr(self, name) for name in self.attributes}
        told["optional"] = None
        return names, told

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        given = dict(inner)
        for name in cls.optional:
            given.setdefault(name, None)
        return cls(*(given[name] for name in (*cls.tensors, *cls.optional)), *(meta[name] for name in cls.attributes))

    def applied(self, function):
        made = []
        for name in (*self.tensors, *self.optional):
            inner = getattr(self, name)
            made.append(inner if inner is None else function(inner))
        return type(self)(*made, *(getattr(self, name) for name in self.attributes))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in cls.table:
            return cls.table[func](func, types, args, kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in cls.table:
            return cls.table[func](func, types, args, kwargs or {})
        raise NotImplementedError(f"{cls.__name__} has no {func}")


CALLS = {"made": 0}
NOTHING = None


class Scaled(Listed):
    tensors = ["held", "scale"]
    optional = ["zero"]
    attributes = ["block"]

    @staticmethod
    def __new__(cls, held, scale, zero, block, *more):
        return Tensor._make_wrapper_subclass(cls, held.shape, dtype=scale.dtype)

    def __init__(self, held, scale, zero, block, *more):
        self.held, self.scale, self.zero, self.block = held, scale, zero, block

    def plain(self):
        found = self.held.to(self.scale.dtype) * self.scale
        if NOTHING is not None and NOTHING.used:
            return NOTHING.of(found)
        return found if self.zero is None else found - self.zero * self.block[0]


@Scaled.implements(torch.nn.functional.linear)
def _linear(func, types, args, kwargs):
    x, weight, *rest = args
    return func(x, weight.plain(), *rest)


@Scaled.implements(torch.ops.aten.detach.default, torch.ops.aten.clone.default)
def _each(func, types, args, kwargs):
    return args[0].applied(lambda inner: func(inner, *args[1:], **kwargs))


@Scaled.implements(torch.ops.aten.sin.default)
def _sin(func, types, args, kwargs):
    """It has effects: they are those of each call."""
    CALLS["made"] += 1
    return func(args[0].plain())


@Scaled.implements(torch.ops.aten.cos.default)
def _cos(func, types, args, kwargs):
    from both_ways import unlike_any_other  # no such name

    return unlike_any_other(args[0])


@Scaled.implements(torch.ops.aten.tan.default)
def _tan(func, types, args, kwargs):
    import math
    from textwrap import dedent

    return func(args[0].plain()) * math.pi + len(dedent(" a"))


def scaled(*, zero=True, block=2, dtype=torch.float32):
    torch.manual_seed(0)
    held = torch.randint(-9, 9, (3, 4), dtype=torch.int8)
    return Scaled(held, torch.rand(3, 1, dtype=dtype), torch.ones(3, 1) if zero else None, [block, 1])


def layer(x, weight):
    return torch.nn.functional.linear(x, weight) * 2


def test_lists_of_attributes_and_tables_of_operations():
    """What a function that registers has effects is of no matter while nobody calls it."""
    graphs, x = [], torch.randn(2, 4)
    region = recorded(layer, graphs)
    for weight in (scaled(), scaled()):
        assert torch.equal(region(x, weight), layer(x, weight))
    assert len(graphs) == 1
    for number, weight in enumerate(
        (scaled(zero=False), scaled(block=3), scaled(block=2.0), scaled(dtype=torch.double)), 2
    ):
        given = x.to(weight.dtype)
        assert torch.equal(region(given, weight), layer(given, weight)) and len(graphs) == number
    weight = scaled()
    weight.block[0] = 5
    assert torch.equal(region(x, weight), layer(x, weight)) and len(graphs) == 6


@pytest.mark.parametrize("name", ["attributes", "table"])
def test_a_list_or_table_that_changes(name, monkeypatch):
    graphs, x, weight = [], torch.randn(2, 4), scaled()
    region = recorded(layer, graphs)
    assert torch.equal(region(x, weight), layer(x, weight))
    same = getattr(Scaled, name).copy()
    monkeypatch.setattr(Scaled, name, same)
    assert torch.equal(region(x, weight), layer(x, weight)) and len(graphs) == 1
    if name == "table":
        same[torch.nn.functional.linear] = lambda func, types, args, kwargs: func(args[0] + 1, args[1].plain())
    else:
        same.append("dtype")
    assert torch.equal(region(x, weight), layer(x, weight)) and len(graphs) == 2


def test_what_has_effects_breaks_where_it_is_called():
    records, weight = [], scaled()
    region = make_region(program, eager, observer=records.append)
    CALLS["made"] = 0
    for number in range(1, 4):
        assert torch.equal(region(weight), weight.plain().sin()) and CALLS["made"] == number
    assert "unsupported-tensor" in {found.code for record in records for found in record.breaks}


def test_imports_in_code():
    graphs, weight = [], scaled()
    region = recorded(lambda x: torch.tan(x) * 2, graphs)
    assert torch.equal(region(weight), torch.tan(weight) * 2) and len(graphs) == 1
    with pytest.raises(ImportError):
        recorded(lambda x: torch.cos(x) * 2, graphs)(weight)
    assert len(graphs) == 1


HOLDING = {"object": OBJECT}


def one_more(x):
    return x * HOLDING["object"].factor()


class Twice(Held):
    """Two of its functions read what cannot be guarded; the one that is looked into first is not called."""

    @staticmethod
    def compute(t):
        if FACTOR > 5:
            return one_more(t.inner)
        return t.inner * HOLDING["object"].factor()


def test_each_function_that_reads_what_cannot_be_guarded():
    assert "unsupported-tensor" in breaks(Twice(torch.ones(2)))


class Catching(Held):
    """It catches what is raised in its own code."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        try:
            return cls.counted(args[0])
        except Exception:
            return func(args[0].inner) * 0

    @staticmethod
    def counted(t):
        LOG.append("counted")
        return t.inner * 2


def test_a_class_that_catches_the_break():
    region = recorded(program, [])
    LOG.clear()
    for _ in range(3):
        assert torch.equal(region(Catching(torch.ones(2))), torch.full((2,), 2.0))
    assert LOG == ["counted"] * 3


class Note:
    """An object with contents, equal to none but itself."""

    def __init__(self, factor):
        self.factor = factor


class Equal(Note):
    def __eq__(self, other):
        return self.factor == other.factor

    __hash__ = None


class Noted(Tensor):
    @staticmethod
    def __new__(cls, inner, note):
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, note):
        self.inner, self.note = inner, note

    def __tensor_flatten__(self):
        return ["inner"], [self.note]

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"], meta[0])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(args[0].inner * args[0].note.factor)


def test_objects_in_a_context():
    """One that is compared by what it holds is guarded by that; another breaks the graph."""
    x = Noted(torch.ones(2), Equal([2]))
    x.note.factor = 2
    assert not breaks(x)
    graphs = []
    region = recorded(program, graphs)
    for factor in (2, 2, 3):
        x.note.factor = factor
        assert torch.equal(region(x), program(x))
    assert len(graphs) == 2
    assert "unsupported-tensor" in breaks(Noted(torch.ones(2), Note(2)))


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
