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
