"""Keys and members whose class has a `__hash__` or `__eq__` of its own: they are asked as often as in plain Python."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools

import pytest
import torch

import flambeau

from .counted_graphs import CountedGraphs

ASKED: list[str] = []


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        ASKED.append(f"hash {self.number}")
        return self.number

    def __eq__(self, other):
        ASKED.append(f"eq {self.number}")
        return self.number == other.number


@functools.lru_cache
def cached(key):
    return 5


class Member(enum.Enum):
    A = 1
    B = 2

    def __hash__(self):
        ASKED.append(f"hash {self.name}")
        return 3


@dataclasses.dataclass(frozen=True)
class Generated:
    number: int


OPERATIONS = {
    "other key": lambda d, key: d["q"],
    "length": lambda d, key: len(d),
    "item": lambda d, key: d[key],
    "in": lambda d, key: key in d,
    "store": lambda d, key: d.__setitem__(key, 4),
    "iteration": lambda d, key: [found is key for found in d],
    "copy": lambda d, key: len(d.copy()),
    "made": lambda d, key: len({key: 1, "a": 2}),
    "set": lambda d, key: len({key, "a"}),
    "tuple": lambda d, key: len({(key, 1): 2}),
    "display of a dict": lambda d, key: len({**d, key: 3}),
    "cache": lambda d, key: cached(key),
}


@pytest.mark.judges_itself
@pytest.mark.parametrize("key", [Key(1), Member.A], ids=["object", "enum"])
@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_a_key_is_asked_as_often_as_in_python(key, kind, operation):
    def f(x, d, key):
        y = x + 1
        return y * 2, operation(d, key)

    graphs = CountedGraphs()
    found = []
    for function in (f, graphs(f)):
        d = kind([(key, 1), ("q", 2)])
        found.append([])
        for _ in range(2):
            ASKED.clear()
            cached.cache_clear()
            result = function(torch.ones(2), d, key)[1]
            found[-1].append((result, list(ASKED)))
    assert found[0] == found[1]
    assert graphs.number >= 1


@pytest.mark.judges_itself
def test_a_key_with_generated_methods_keeps_one_graph():
    region = flambeau.compile(lambda x, d: x * d["q"], backend="eager", fullgraph=True)
    assert region(torch.ones(1), {Generated(1): 1, "q": 2}).item() == 2


class Compared(enum.Enum):
    A = 1
    B = 2

    def __eq__(self, other):
        ASKED.append(f"eq {self.name}")
        return self is other

    def __hash__(self):
        ASKED.append(f"hash {self.name}")
        return 3


PAIR = (1, Compared.B)
COMPARISONS = {
    "is": lambda member: member is Compared.A,
    "equal": lambda member: member == Compared.A,
    "in a list": lambda member: member in [Compared.B, Compared.A],
    "tuples": lambda member: (1, member) == (1, Compared.B),
    "in an argument": lambda member: (member, 1)[0] is Compared.A,
    "a tuple from before": lambda member: PAIR[1] is member,
    "equal tuples": lambda member: (1, member) == PAIR,
    "key": lambda member: {(1, member): 2}[1, member],
}


@pytest.mark.judges_itself
@pytest.mark.parametrize("operation", COMPARISONS.values(), ids=COMPARISONS)
@pytest.mark.parametrize("argument", [lambda member: member, lambda member: (member,)], ids=["member", "tuple"])
def test_a_member_is_compared_as_often_as_in_python(argument, operation):
    def f(x, given):
        y = x + 1
        return y * 2, operation(given[0] if type(given) is tuple else given)

    graphs = CountedGraphs()
    found = []
    for function in (f, graphs(f)):
        found.append([])
        for member in (Compared.A, Compared.A, Compared.B, Compared.A):
            ASKED.clear()
            result = function(torch.ones(2), argument(member))[1]
            found[-1].append((result, list(ASKED)))
    assert found[0] == found[1]
    assert graphs.number >= 1


class Meta(type):
    def __hash__(cls):
        ASKED.append(f"hash of {cls.__name__}")
        return 3

    def __eq__(cls, other):
        ASKED.append(f"eq of {cls.__name__}")
        return cls is other


class Asked(metaclass=Meta):
    number = 2

    def __init__(self, held=3):
        self.held = held

    def method(self):
        return self.held + 1


class AskedList(list, metaclass=Meta):
    pass


class AskedError(Exception, metaclass=Meta):
    pass


class AskedMeta(enum.EnumMeta):
    __hash__ = Meta.__hash__
    __eq__ = Meta.__eq__


class AskedEnum(enum.Enum, metaclass=AskedMeta):
    A = 1


def catches():
    try:
        raise AskedError("text")
    except AskedError as error:
        return error.args


OBJECT, LIST, BY_CLASS = Asked(), AskedList([1, 2]), {Asked: 3, AskedList: 4}
CLASSES = {
    "attribute": lambda: OBJECT.held,
    "method": lambda: OBJECT.method(),
    "made": lambda: Asked(4).held,
    "class": lambda: Asked.number,
    "isinstance": lambda: isinstance(OBJECT, (AskedList, Asked)),
    "type": lambda: type(OBJECT) is Asked,
    "equal": lambda: Asked == AskedList,
    "list": lambda: LIST[0],
    "raised": catches,
    "member": lambda: AskedEnum.A.value,
    "keys": lambda: {Asked: 1, AskedList: 2}[AskedList],
    "key": lambda: BY_CLASS[Asked],
    "part of a key": lambda: {(1, Asked): 2}[1, Asked],
    "set": lambda: len({Asked, AskedList}),
    "stored": lambda: setattr(Asked, "number", 2),
}


@pytest.mark.judges_itself
@pytest.mark.parametrize("operation", CLASSES.values(), ids=CLASSES)
def test_a_class_is_asked_as_often_as_in_python(operation):
    def f(x):
        y = x + 1
        return y * 2, operation()

    graphs = CountedGraphs()
    found = []
    for function in (f, graphs(f)):
        found.append([])
        for _ in range(3):
            ASKED.clear()
            result = function(torch.ones(2))[1]
            found[-1].append((result, list(ASKED)))
    assert found[0] == found[1]
    assert graphs.number >= 1
