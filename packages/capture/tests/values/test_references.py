"""Weak references that a program makes: keys of weak dictionaries, which object they are of, and when it is gone."""

from __future__ import annotations

import functools
import gc
import weakref

import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region


class Table:
    """What a program counts by module."""

    def __init__(self):
        self.layers = [torch.nn.Identity(), torch.nn.Identity()]
        self.current = self.layers[0]
        self.counts = weakref.WeakKeyDictionary()


def _both_ways(make_program, changes, **options):
    """Calls after each change of the table, of a region and in plain Python."""
    sides = []
    for compiled in (True, False):
        table = Table()
        program = make_program(table)
        function = make_region(program, eager, **options) if compiled else program
        found = []
        for change in changes:
            change(table)
            found.append((outcome(function, torch.ones(2)), sorted(table.counts.values())))
        sides.append(found)
    assert_equal(*sides)


def _nothing(table):
    pass


def _other(table):
    table.current = table.layers[1]


def _first(table):
    table.current = table.layers[0]


def _drop(table):
    table.current = torch.nn.Identity()
    table.layers.clear()
    gc.collect()


def test_modules_are_counted_in_one_graph():
    """Also another module, the first one again, and one whose predecessors are gone."""

    def make(table):
        def program(x):
            table.counts[table.current] = table.counts.get(table.current, 0) + 1
            return x * table.counts[table.current], len(table.counts), table.current in table.counts

        return program

    _both_ways(make, [_nothing, _nothing, _other, _nothing, _first, _drop, _nothing], fullgraph=True)


def test_a_reference_is_of_its_object():
    """Two without a callback are one object, two with one are two; a dict takes them for one key."""

    def make(table):
        def program(x):
            plain, again = weakref.ref(table.current), weakref.ref(table.current)
            told, other = weakref.ref(table.current, print), weakref.ref(table.current, print)
            return x + 1, plain() is table.current, plain is again, told is other, plain in {told: 1}, bool(plain)

        return program

    _both_ways(make, [_nothing, _other, _nothing], fullgraph=True)


def test_comparisons_are_left_to_python():
    """They compare what is referred to, as its class says."""

    def make(table):
        def program(x):
            return x + 1, weakref.ref(table.current, print) == weakref.ref(table.current, print)

        return program

    _both_ways(make, [_nothing, _other])


def test_a_reference_that_leaves_calls_back():
    """It is made for real, of the object that the call brought."""
    table, ended = Table(), []

    def program(x):
        made = weakref.ref(table.layers[0], ended.append)
        return x + 1, made

    found = make_region(program, eager, fullgraph=True)(torch.ones(2))[1]
    assert found() is table.layers[0]
    table.current = None
    table.layers.clear()
    gc.collect()
    assert found() is None
    assert ended == [found]


def test_what_a_variable_alone_holds_breaks(broken):
    """Where a frame is cut, the variable may hold it for another time than in plain Python."""
    assert broken(
        lambda x, module: (module(x), weakref.ref(module)() is module), torch.ones(2), torch.nn.Identity()
    ) == {"unsupported-call"}


def test_a_function_for_each_type_is_chosen_in_one_graph():
    """`functools.singledispatch` keeps what it chose by weak references of classes; a later registration is seen."""

    @functools.singledispatch
    def scaled(value, x):
        return x

    scaled.register(int)(lambda value, x: x * value)
    scaled.register(str)(lambda value, x: x + len(value))
    region = make_region(lambda value, x: scaled(value, x).sin(), eager, fullgraph=True)
    for value in (3, "abc", 2.5, None):
        assert_equal(region(value, torch.ones(2)), scaled(value, torch.ones(2)).sin())
    scaled.register(float)(lambda value, x: x - value)
    for value in (2.5, 3):
        assert_equal(region(value, torch.ones(2)), scaled(value, torch.ones(2)).sin())
