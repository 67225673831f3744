"""`copy.copy` and `copy.deepcopy` of containers and of objects, also of those whose classes look attributes up in their own way."""

from __future__ import annotations

import collections
import copy

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

NOTES: list[str] = []
Point = collections.namedtuple("Point", ["x", "y"])


def test_deep_copies_of_tuples():
    """The tuple itself where no part of it is copied; a named one is always another object."""

    def function(x, kept, changing, point):
        copies = copy.deepcopy((kept, changing, point))
        copies[1][0].append(2)
        return x + 1, copies, copies[0] is kept, copies[1] is changing, copies[2] is point

    for _ in range(2):
        arguments = (1, ("a",)), ([1],), Point(1, 2)
        found, wanted = (f(torch.ones(1), *arguments) for f in (make_region(function, eager), function))
        assert found == wanted


def test_a_deep_copy_of_a_dict_that_changes():
    """What its keys are is guarded."""

    def function(x, table):
        made = copy.deepcopy(table)
        made["own"] = x + 1
        return made

    region = make_region(function, eager)
    for table in ({"a": [1]}, {"a": [1], "b": 2}, {"b": 2}, {}):
        assert region(torch.ones(1), table) == function(torch.ones(1), table)


class Plain:
    def __init__(self):
        self.number, self.items = 2, [1, 2]


class Mapped(Plain):
    """As configurations of models are: other names for attributes, also when they are set."""

    names = {"count": "number"}  # noqa: RUF012 - read alone

    def __setattr__(self, name, value):
        NOTES.append(f"set {name}")
        super().__setattr__(type(self).names.get(name, name), value)

    def __getattribute__(self, name):
        if name != "names" and name in super().__getattribute__("names"):
            name = super().__getattribute__("names")[name]
        return super().__getattribute__(name)


class Noted(Plain):
    def __getattr__(self, name):
        NOTES.append(f"asked {name}")
        raise AttributeError(name)


class Answering(Plain):
    """Is asked for `__deepcopy__`, and for `__setstate__` before it has attributes."""

    def __getattr__(self, name):
        if name == "__deepcopy__":
            return lambda memo: "its own copy"
        raise AttributeError(name)


class Nothing(Plain):
    def __getattr__(self, name):
        return None


class Empty(Plain):
    def __init__(self):
        pass

    def __getattr__(self, name):
        NOTES.append(f"asked {name}")
        raise AttributeError(name)


class Delegating(Plain):
    """What it does not have is asked of another object, which a copy does not have yet: the lookup does not end."""

    def __init__(self):
        super().__init__()
        self.inner = Plain()

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Refusing(Plain):
    def __getattribute__(self, name):
        if name in ("__reduce_ex__", "__setstate__"):
            raise ValueError(name)
        return super().__getattribute__(name)


CLASSES = [Plain, Mapped, Noted, Answering, Nothing, Empty, Delegating, Refusing]
WHOLE = [Plain, Mapped, Noted, Empty]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
@pytest.mark.parametrize("cls", CLASSES)
def test_objects(cls, copied):
    """Brought by the call, and made in the frame; what their classes are asked, in order; copies are other objects."""

    def function(x, given):
        found = []
        for one in (given, cls()):
            made = copied(one)
            if isinstance(made, Plain) and vars(made):
                vars(made)["number"] += 1
                vars(made)["items"].append(3)
            found.append((sorted(vars(made)) if isinstance(made, Plain) else made, vars(one), made is one))
        return x + 1, found

    seen = []
    for run in (function, make_region(function, eager, fullgraph=cls in WHOLE)):
        NOTES.clear()
        seen.append([(outcome(run, torch.ones(2), cls()), list(NOTES)) for _ in range(2)])
    for found, expected in zip(seen[1], seen[0], strict=True):
        assert_equal(found, expected)
