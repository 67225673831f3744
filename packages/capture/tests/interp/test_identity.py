"""Objects that a call brings: one under two names in one call and two equal ones in another, in either order, of every kind."""

from __future__ import annotations

import collections
import copy
import enum
import functools
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


def _assert_same_in_either_order(program, make, arguments=lambda a, b: (a, b)):
    """As plain Python, where a call brings one object under two names, and where it brings two; whichever came first."""
    for order in ((False, True, False), (True, False, True)):
        region = make_region(program, eager)
        for is_one in order:
            told = []
            for function in (program, region):
                first = make()
                given = arguments(first, first if is_one else make())
                told.append(function(torch.ones(2), *given)[1:])
            assert told[0] == told[1], (order, is_one)


@pytest.mark.parametrize("way", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_object_or_two_that_are_equal(kind, way):
    program, arguments = PROGRAMS[way]
    _assert_same_in_either_order(program, KINDS[kind], arguments)


class Shown:
    def __str__(self):
        return str(vars(self))


MUTABLE = {name: KINDS[name] for name in ("list", "dict", "ordered_dict", "set", "deque")} | {"object": Shown}


@pytest.mark.parametrize("kind", MUTABLE)
def test_what_is_copied_twice_is_copied_once(kind):
    def program(t, a, b):
        made = copy.deepcopy([a, b, a])
        _add(made[0])
        return t + 1, made[0] is made[1], made[0] is made[2], str(made[1])

    _assert_same_in_either_order(program, MUTABLE[kind])


@pytest.mark.parametrize("kind", MUTABLE)
def test_what_is_changed_by_one_name_is_so_by_the_other(kind):
    def program(t, a, b):
        _add(a)
        return t + 1, str(a), str(b)

    _assert_same_in_either_order(program, MUTABLE[kind])


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


def test_identity_asks_no_method_of_the_program():
    asked = []

    class Asked(enum.IntEnum):
        ONE = 1

        def __eq__(self, other):
            asked.append(other)
            return int(self) == other

        __hash__ = enum.IntEnum.__hash__

    def program(t, a, b):
        return t + 1, a is b

    region = make_region(program, eager)
    for given in ((1, Asked.ONE), (Asked.ONE, 1), ((Asked.ONE,), (Asked.ONE,))):
        assert region(torch.ones(2), *given)[1] is False
    assert asked == []
