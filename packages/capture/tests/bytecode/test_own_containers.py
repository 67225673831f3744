"""Containers that a call makes for itself: what is changed there is nobody else's."""

from __future__ import annotations

import builtins
import dis

import pytest

from flambeau_capture.bytecode.normalise import decode_normalised
from flambeau_capture.bytecode.own_containers import on_own

SHARED = []


def literal(x):
    rows = []
    rows.append(x)
    table = {"a": 1}
    table[x] = 2
    seen = {x}
    seen.add(3)
    del table["a"]
    return rows, table, seen


def copied(self):
    names = self.names.copy()
    for name in self.more:
        if name:
            names.append(name)
    return names


def made(x):
    rows, other = list(x), 1
    rows.extend(x)
    table = dict(x)
    table[other if x else 2] = [y for y in x]
    return rows


def comprehended(x):
    rows = [y for y in x]
    rows.append(x)
    table = {y: 1 for y in x}
    table[x] = 1
    seen = {y for y in x}
    seen.add(x)


def read_within(x):
    rows = []
    rows.append(x)
    return (row for row in rows)


def keywords(*args, **kwargs):
    kwargs.pop("a", None)
    kwargs = {"b": args}
    kwargs["c"] = 1
    return kwargs


def aliased(x):
    rows = []
    same = rows
    same.append(x)
    return rows


def at_once(x):
    [].append(x)
    [1, *x].sort()
    {**x}.update(x)


def argument(rows):
    rows.append(1)
    rows[0] = 2
    rows = []
    rows.append(3)


def either(x):
    rows = SHARED if x else []
    rows.append(1)


def later(x):
    rows = []
    for _ in x:
        rows.append(1)
        rows = SHARED
    return rows


def outside(self):
    SHARED.append(1)
    self.rows.append(1)
    rows = self.rows
    rows[0] = 1


def closed_over(x):
    rows = []

    def other():
        nonlocal rows
        rows = SHARED

    other()
    rows.append(x)


def unpacked(x):
    rows, *others = x
    rows.append(1)
    others.append(1)


def given_back(make):
    rows = make([])
    rows.append(1)


def caught(x):
    try:
        rows = []
        x()
    except ValueError as error:
        rows = error.args
    rows.append(1)


OWN = [literal, copied, made, comprehended, read_within, keywords, aliased, at_once]
OTHERS = [argument, either, later, outside, closed_over, unpacked, given_back, caught]
CHANGES = ("append", "add", "extend", "pop", "sort", "update")


def changes(function):
    """The instructions of a function that change a container, and whether each changes one of its own."""
    own = on_own(function.__code__, vars(builtins))
    found = [
        at in own
        for at, one in enumerate(decode_normalised(function.__code__))
        if one.name in ("STORE_SUBSCR", "DELETE_SUBSCR") or (one.name.startswith("LOAD_") and one.value in CHANGES)
    ]
    assert found, dis.Bytecode(function).dis()
    return found


@pytest.mark.parametrize("function", OWN, ids=lambda function: function.__name__)
def test_own(function):
    assert all(changes(function))


@pytest.mark.parametrize("function", OTHERS, ids=lambda function: function.__name__)
def test_others(function):
    assert not any(changes(function))


def test_a_class_that_is_no_builtin():
    assert not any(at for at in on_own(made.__code__, ()) if decode_normalised(made.__code__)[at].value == "extend")


def test_generators_have_none():
    def generator():
        rows = []
        rows.append(1)
        yield rows

    assert not on_own(generator.__code__, vars(builtins))
