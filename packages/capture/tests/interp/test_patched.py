"""What a program puts in the place of a function or method, before or after the first compile, is what runs."""

from __future__ import annotations

import collections
import copy
import functools
import math
import operator
import statistics
import textwrap
import weakref

import pytest
import torch
import torch.nn.functional as F
from both_ways import assert_equal, eager, outcome
from torch import nn

from flambeau_capture import make_region
from flambeau_capture.guards import spec
from flambeau_capture.guards.explain import explain
from flambeau_capture.sources.source import Local

_LINEAR = nn.Linear(4, 4)
_NET = nn.Sequential(nn.Linear(4, 4), nn.ReLU())


class _Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x) + 1


_WRAPPED = _Wrapped()


def _times(x, *args, **kwargs):
    return x * 100


def _seven(*args, **kwargs):
    return 7.0


PATCHES = {
    "function of torch": (lambda x: torch.relu(x) + 1, torch, "relu", _times),
    "native function of torch": (lambda x: torch.add(x, 1), torch, "add", _times),
    "function of nn.functional": (lambda x: F.relu(x) + 1, F, "relu", _times),
    "native function of nn.functional": (lambda x: F.gelu(x), F, "gelu", _times),
    "method that a node calls": (lambda x: F.softmax(x, -1), torch.Tensor, "softmax", _times),
    "function that a node calls": (lambda x: F.dropout(x, 0.5, False), torch, "dropout", _times),
    "function that a module calls": (lambda x: _WRAPPED(x), F, "linear", _times),
    "method of tensors": (lambda x: x.relu() + 1, torch.Tensor, "relu", _times),
    "written in place": (lambda x: x.clone().add_(1), torch.Tensor, "add_", _times),
    "operator": (lambda x: x + 1, torch.Tensor, "__add__", _times),
    "reflected operator": (lambda x: 1 + x, torch.Tensor, "__radd__", _times),
    "subscript": (lambda x: x[1:], torch.Tensor, "__getitem__", _times),
    "size": (lambda x: x + x.size(0), torch.Tensor, "size", lambda x, dim: 9),
    "forward": (lambda x: _LINEAR(x), nn.Linear, "forward", lambda self, x: x * 100),
    "forward below": (lambda x: _WRAPPED(x), nn.Linear, "forward", lambda self, x: x * 100),
    "forward of an item": (lambda x: _NET(x), nn.ReLU, "forward", lambda self, x: x * 100),
    "forward of a container": (lambda x: _NET(x), nn.Sequential, "forward", lambda self, x: x * 100),
    "call": (lambda x: _WRAPPED(x), nn.Module, "__call__", lambda self, x: x * 100),
    "initialiser": (lambda x: nn.init.calculate_gain("relu") * x, nn.init, "calculate_gain", _seven),
    "dtype": (lambda x: x.to(torch.float64), torch, "float64", torch.int32),
    "math": (lambda x: x * math.sqrt(4.0), math, "sqrt", _seven),
    "constant": (lambda x: x * math.pi, math, "pi", 3.0),
    "builtin": (lambda x: x * divmod(7, 2)[0], __import__("builtins"), "divmod", lambda a, b: (7, 1)),
    "functools": (lambda x: x * functools.reduce(operator.add, [1, 2]), functools, "reduce", _seven),
    "operator module": (lambda x: x * functools.reduce(operator.add, [1, 2]), operator, "add", _seven),
    "copy": (lambda x: x * len(copy.deepcopy([1, 2])), copy, "deepcopy", lambda obj: [1]),
    "Python of the library": (lambda x: (x + 1, textwrap.dedent(" a")), textwrap, "dedent", lambda text: "b"),
    "statistics": (lambda x: x + statistics.mean([1, 2, 3]), statistics, "mean", _seven),
    "class of the library": (
        lambda x: x * len(collections.OrderedDict(a=1)), collections, "OrderedDict", lambda **named: [1, 2, 3]
    ),
}  # fmt: skip


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
@pytest.mark.parametrize("name", PATCHES)
def test_what_is_replaced_is_noticed(name, first):
    function, owner, attribute, replacement = PATCHES[name]
    there = attribute in vars(owner)
    original = getattr(owner, attribute)
    records = []
    region = make_region(function, eager, observer=records.append, suppress_errors=False)
    x = torch.arange(4.0)

    def restore():
        if there:
            setattr(owner, attribute, original)
        elif attribute in vars(owner):
            delattr(owner, attribute)

    try:
        for patched in (first, not first, not first, first, not first):
            setattr(owner, attribute, replacement) if patched else restore()
            assert_equal(outcome(region, x), outcome(function, x))
    finally:
        restore()
    assert 1 <= sum(record.graph is not None for record in records) <= 2, "one entry for each, and none for a return"


def test_a_module_that_others_write_to_keeps_its_entries():
    records = []
    region = make_region(lambda x: F.relu(x) + math.pi, eager, observer=records.append)
    x = torch.ones(3)
    region(x)
    try:
        for value in range(3):
            torch.somebody_else, F.somebody_else = value, value
            region(x)
    finally:
        del torch.somebody_else, F.somebody_else
    assert len(records) == 1


def other_answer(original):
    """Calls torch's own, and gives something else of the same kind."""

    def replaced(*args, **kwargs):
        found = original(*args, **kwargs)
        return not found if isinstance(found, bool) else found + 1

    return replaced


@pytest.mark.parametrize(
    "name", ["dim", "numel", "is_contiguous", "storage_offset", "is_inference", "element_size", "_is_view", "is_pinned"]
)
def test_a_replacement_that_calls_torchs_own(name, monkeypatch):
    """Torch's own is what it calls, not itself: of an input, and of what the frame computed."""

    def function(x):
        y = x + 1
        return y * 2, getattr(x, name)(), getattr(y, name)(), getattr(torch.Tensor, name)(y)

    region = make_region(function, eager, suppress_errors=False)
    x = torch.ones(3, 2)
    assert_equal(region(x), function(x))
    monkeypatch.setattr(torch.Tensor, name, other_answer(getattr(torch.Tensor, name)))
    for given in (x, torch.ones(4, 2)):
        assert_equal(region(given), function(given))
    monkeypatch.undo()
    assert_equal(region(x), function(x))


def test_a_builtin_function_in_the_place_of_a_method_is_not_bound():
    """Native functions are no descriptors: called as methods they miss their argument; a Python function put there next does not."""

    def function(x):
        return x.sort()

    own = torch.Tensor.sort
    region = make_region(function, eager, suppress_errors=False)
    x = torch.arange(3.0)
    try:
        for replacement in (
            torch.negative,
            lambda *args: own(*args)[0],
            torch.negative,
            lambda *args: torch.negative(*args),
        ):
            torch.Tensor.sort = replacement
            assert_equal(outcome(region, x), outcome(function, x))
    finally:
        del torch.Tensor.sort


@pytest.mark.parametrize("name", ["__iter__", "__len__", "__getitem__"])
@pytest.mark.parametrize("replacement", [torch.negative, len, torch.Tensor.neg], ids=["negative", "len", "neg"])
def test_a_builtin_function_in_the_place_of_a_containers_method(name, replacement, monkeypatch):
    net = nn.Sequential(nn.ReLU(), nn.Identity())

    def function(x):
        return sum(1 for _ in net) * x, len(net), net[0](x), net(x)

    region = make_region(function, eager, suppress_errors=False)
    x = torch.arange(3.0)
    for _ in range(2):
        assert_equal(outcome(region, x), outcome(function, x))
        monkeypatch.setattr(nn.Sequential, name, replacement)


def test_why_an_entry_does_not_fit_is_told_without_the_programs_code():
    """What is shown of values calls neither their `__repr__` nor their `__len__`, nor torch's own for tensors, which calls operators by name."""
    called = []

    class Loud(list):
        def __repr__(self):
            called.append("repr")
            return "loud"

        def __len__(self):
            called.append("len")
            return list.__len__(self)

    values = [None, Loud([1]), torch.ones(2), [Loud([1])], 3]
    told = [explain(spec.IdentityIs(Local("v"), abs), {"v": value}, {}) for value in values]
    told += [explain(spec.SequenceLength(Local("v"), 3), {"v": value}, {}) for value in values]
    assert "actual a tensor float32[2]" in told[2]
    assert "actual <interp.test_patched" in told[1]
    assert "actual [<" in told[3]
    assert "expected 3, actual 1" in told[6]
    assert called == []


def test_a_method_that_is_replaced_goes():
    """An entry holds neither it nor what it closes over, as weak references to it tell."""

    class Owner:
        def scale(self):
            return 2

    owner = Owner()
    bound = weakref.WeakMethod(owner.scale)

    def function(x):
        return x * (bound()() if bound() else 5)

    region = make_region(function, eager, suppress_errors=False)
    x = torch.ones(2)
    assert_equal(region(x), x * 2)
    Owner.scale = lambda self: 3
    assert bound() is None
    assert_equal(region(x), x * 5)


def test_a_method_that_is_put_back_into_another_class():
    """Torch's own `__truediv__` is inherited by `Tensor`; put back by assignment, `Tensor` has it itself."""
    own = torch.Tensor.__truediv__
    try:
        torch.Tensor.__truediv__ = lambda self, other: other
        torch.Tensor.__truediv__ = own
        x = torch.ones(2, 3)
        compiled = make_region(lambda x: F.normalize(x) + 1, backend=eager, suppress_errors=False)
        for _ in range(2):
            assert_equal(compiled(x), F.normalize(x) + 1)
    finally:
        del torch.Tensor.__truediv__
