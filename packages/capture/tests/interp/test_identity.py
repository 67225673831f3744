"""`is` between objects that a call brings: one object in one call and two equal ones in another, in either order, of every kind."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import operator
import types

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


class Thing:
    pass


class OwnList(list):
    pass


class OwnInteger(int):
    pass


Named = collections.namedtuple("Named", "a b")

#: Each makes another object at each call, equal to the one before where the kind has equality.
KINDS = {
    "list": lambda: [1],
    "tuple": lambda: tuple([1, "a"]),
    "tuple_of_tensors": lambda: (torch.ones(1),),
    "named": lambda: Named(1, 2),
    "dict": lambda: {1: 2},
    "ordered_dict": lambda: collections.OrderedDict(a=1),
    "set": lambda: {1},
    "frozenset": lambda: frozenset([1, "a"]),
    "deque": lambda: collections.deque([1]),
    "own_list": lambda: OwnList([1]),
    "own_integer": lambda: OwnInteger(5),
    "object": Thing,
    "function": lambda: lambda: 1,
    "method": lambda: types.MethodType(operator.neg, Thing()),
    "partial": lambda: functools.partial(operator.neg, 1),
    "module": lambda: torch.nn.ReLU(),
    "tensor": lambda: torch.ones(2),
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "size": lambda: torch.Size([1, 2]),
    "device": lambda: torch.device("cpu"),
    "text": lambda: "".join(["a b", "!"]),
    "bytes": lambda: bytes(bytearray(b"a b")),
    "integer": lambda: int("100000"),
    "float": lambda: float("1.5"),
    "nan": lambda: float("nan"),
    "complex": lambda: complex("1+2j"),
    "range": lambda: range(3),
    "slice": lambda: slice(1, 2),
    "iterator": lambda: iter([1]),
    "view": lambda: {1: 2}.keys(),
    "class": lambda: type("Made", (), {}),
    "exception": lambda: ValueError(1),
}


def _holder(value):
    made = Thing()
    made.value = value
    return made


PROGRAMS = {
    "arguments": (lambda t, a, b: (t + 1, a is b, a is not b), lambda a, b: (a, b)),
    "elements": (lambda t, items, place: (t + 1, items[0] is items[place]), lambda a, b: ([a, b], 1)),
    "attributes": (
        lambda t, a, b: (t + 1, a.value is b.value, a.value is a.value),
        lambda a, b: (_holder(a), _holder(b)),
    ),
    "by_function": (lambda t, a, b: (t + 1, operator.is_(a, b)), lambda a, b: (a, b)),
}


def _add(container):
    match container:
        case list() | collections.deque():
            container.append(3)
        case dict():
            container[3] = 3
        case set():
            container.add(3)
        case _:
            container.added = 3


def _copied_at_once(t, a, b):
    made = copy.deepcopy([a, b, a])
    _add(made[0])
    return t + 1, [made[0] is made[1], made[0] is made[2], str(made[1])]


class Shown:
    def __str__(self):
        return str(vars(self))


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize(
    "kind", ["tuple", "named", "size", "device", "integer", "float", "text", "bytes", "range", "slice", "frozenset"]
)
def test_whether_a_copy_is_another_object(kind, copier):
    def program(t, value):
        made = copier(value)
        return t + 1, made is value, made == value

    for _ in range(2):
        given = KINDS[kind]()
        assert make_region(program, eager)(torch.ones(2), given)[1:] == program(torch.ones(2), given)[1:]


@pytest.mark.parametrize("kind", [*(name for name in KINDS if "dict" in name), "list", "set", "deque", Shown], ids=str)
def test_what_is_copied_twice_is_copied_once(kind):
    make = KINDS.get(kind, kind)
    for order in ((False, True, False), (True, False, True)):
        region = make_region(_copied_at_once, eager)
        for is_one in order:
            first = make()
            given = first, first if is_one else make()
            assert region(torch.ones(2), *given)[1] == _copied_at_once(torch.ones(2), *given)[1], (order, is_one)


def _changed_by_one_name(t, a, b):
    _add(a)
    return t + 1, str(a), str(b)


@pytest.mark.parametrize("kind", [*(name for name in KINDS if "dict" in name), "list", "set", "deque", Shown], ids=str)
def test_what_is_changed_by_one_name_is_so_by_the_other(kind):
    make = KINDS.get(kind, kind)
    for order in ((False, True, False), (True, False, True)):
        region = make_region(_changed_by_one_name, eager)
        for is_one in order:
            told = []
            for function in (_changed_by_one_name, region):
                first = make()
                told.append(function(torch.ones(2), first, first if is_one else make())[1:])
            assert told[0] == told[1], (order, is_one)


@pytest.mark.parametrize(("kind", "way"), list(itertools.product(KINDS, PROGRAMS)))
def test_one_object_or_two_that_are_equal(kind, way):
    program, arguments = PROGRAMS[way]
    for order in ((False, True, False), (True, False, True)):
        region = make_region(program, eager)
        for is_one in order:
            first = KINDS[kind]()
            given = arguments(first, first if is_one else KINDS[kind]())
            assert region(torch.ones(2), *given)[1:] == program(torch.ones(2), *given)[1:], (order, is_one)
