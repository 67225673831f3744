"""The order of sets that were made or changed while tracing, which object a constant from outside is afterwards, and that each call makes its own classes."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import operator
import types
import typing

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


def _grown(x):
    found = {9, 1, 17}.union(((1, 2), (3, 4)))
    return x + 1, list, found


def _shrunk(x):
    found = {1}
    for i in range(8):
        found.add(16 * i + 1)
    for i in range(5):
        found.discard(16 * i + 1)
    found.add(33)
    return x + 1, list, found


def _classes(x):
    return x + 1, list, frozenset((1, 2)).union((str, int, float))


def _of_a_view(x):
    return x + 1, list, {9: 0, 1: 0}.keys() | {17, 33, 65}


@pytest.mark.parametrize("function", [_grown, _shrunk, _classes, _of_a_view])
def test_a_set_that_was_made_has_its_order(function):
    _, _, expected = function(torch.ones(1))
    _, _, found = make_region(function, eager)(torch.ones(1))
    assert type(found) is type(expected)
    assert list(found) == list(expected)


@pytest.mark.parametrize("added", [(33, 17, 1), (17, 33), (1, 33, 17, 49, 65, 81, 97)])
@pytest.mark.parametrize("how", ["add", "update", "symmetric_difference_update"])
def test_a_set_from_outside_gets_its_members_in_order(how, added):
    def one_by_one(x, s):
        for item in added:
            s.add(item)
        return x + 1

    def at_once(x, s):
        getattr(s, how)(added)
        return x + 1

    function = one_by_one if how == "add" else at_once
    captured = make_region(function, eager)
    for _ in range(2):
        mine, plain = {9}, {9}
        function(torch.ones(1), plain)
        captured(torch.ones(1), mine)
        assert list(mine) == list(plain)


@pytest.mark.parametrize(
    "make", [lambda: tuple([1, 2]), lambda: range(1, 4), lambda: frozenset([1]), lambda: torch.Size([2])]
)
def test_a_constant_from_outside_is_given_back(make):
    def function(x, a):
        return x + 1, a, [a]

    captured = make_region(function, eager)
    for _ in range(2):
        given = make()
        _, found, (inner,) = captured(torch.ones(1), given)
        assert found is given
        assert inner is given


def test_a_key_that_is_moved_may_come_later():
    from collections import OrderedDict

    def function(x, d):
        try:
            d.move_to_end("a")
        except KeyError:
            return x + 1, "missing"
        return x + 2, list(d)

    captured = make_region(function, eager)
    for given in (OrderedDict(b=1), OrderedDict(a=1, b=2), OrderedDict()):
        assert captured(torch.ones(1), given)[1] == function(torch.ones(1), given.copy())[1]


class Ordered(collections.OrderedDict):
    """Compares as its base does."""


@pytest.mark.parametrize("cls", [dict, collections.OrderedDict, Ordered])
@pytest.mark.parametrize("kind", ["numbers", "symbolic numbers", "tensors"])
def test_ordered_dicts_compare_with_their_order(cls, kind):
    one, two = (torch.ones(1), torch.zeros(1)) if kind == "tensors" else (3, 2)

    def f(x, given, dict_equal):
        made = collections.OrderedDict(b=two, a=one)
        compared = [given == made, given != made, made == given, made in [given], given == {"b": two, "a": one}]
        return x + 1, [*compared, given.__eq__(made), dict_equal(given, made)]

    given = cls(a=one, b=two)
    region = make_region(f, eager, dynamic=kind == "symbolic numbers")
    x = torch.ones(2)
    for dict_equal in (dict.__eq__, operator.eq):
        assert region(x, given, dict_equal)[1] == f(x, given, dict_equal)[1]


def _class():
    class Local:
        pass

    return Local


@pytest.mark.parametrize(
    "make",
    [
        lambda: collections.namedtuple("Pair", "a b"),
        lambda: type(collections.namedtuple("Pair", "a b")(1, 2)),
        lambda: enum.Enum("Pair", "a b"),
        lambda: enum.IntEnum(value="Pair", names="a b").a,
        lambda: enum.Flag("Pair", ["a", "b"])(1),
        lambda: enum.EnumMeta("Empty", (), enum.EnumMeta.__prepare__("Empty", ())),
        lambda: abc.ABCMeta("Local", (), {}),
        lambda: type("Local", (), {}),
        lambda: type("Local", (int,), {})(3),
        _class,
        lambda: _class()(),
        lambda: types.new_class("Local"),
        lambda: dataclasses.make_dataclass("Record", ["a"]),
        lambda: typing.NamedTuple("Pair", [("a", int)]),
        lambda: functools.partial(max, 1),
        lambda: functools.lru_cache(_class),
        lambda: lambda: 3,
    ],
)
def test_each_call_makes_another(make):
    def function(x):
        return x + 1, make()

    captured = make_region(function, eager)
    made = [captured(torch.ones(1))[1] for _ in range(3)]
    plain = make()
    for one, other in ((made[0], made[1]), (made[1], made[2]), (made[0], made[2])):
        assert one is not other
        assert (type(one) is type(other)) == (type(plain) is type(make()))
    classes = [one if isinstance(one, type) else type(one) for one in (made[0], plain)]
    assert classes[0].__module__ == classes[1].__module__


class _Ordered(collections.OrderedDict):
    """A class of the program's."""


def _told(items, x):
    return [*items], len(items), items.get("z"), x + 1


def _popped(items, x):
    return items.popitem(), x + 1


def _extended(items, x):
    items["q"] = 4
    return [*items], len(items), x + 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [collections.OrderedDict, _Ordered])
@pytest.mark.parametrize("write", [lambda d: dict.__setitem__(d, "z", 3), lambda d: dict.__delitem__(d, "a")])
@pytest.mark.parametrize("function", [_told, _popped, _extended])
def test_ordered_dicts_that_dict_wrote_to(function, write, kind):
    def outcome(call):
        items = kind(a=1, b=2)
        write(items)
        try:
            shown = repr(call(items, torch.ones(2)))
        except KeyError as error:
            shown = repr(error)
        return shown, list(dict.items(items))

    region = make_region(function, eager)
    region(kind(a=1, b=2), torch.ones(2))
    assert outcome(region) == outcome(function)
    assert outcome(make_region(function, eager)) == outcome(function)
