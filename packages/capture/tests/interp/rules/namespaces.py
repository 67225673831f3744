"""Attributes and globals that are also reached through the dict they are stored in, or through a proxy of it."""

from __future__ import annotations

import collections
import types

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


class Thing:
    k = 1

    def __init__(self):
        self.n = 1


def _twice(f):
    return f, [(x,), (x,), (x,)]


@p
def a_proxy_of_attributes():
    o = Thing()
    shown = types.MappingProxyType(vars(o))

    def f(x):
        before = shown["n"]
        o.n = before + 1
        o.more = 3
        return x + shown["n"], len(shown), "more" in shown, dict(shown), [*shown]

    return _twice(f)


@p
def a_proxy_of_deleted_attributes():
    o = Thing()
    shown = types.MappingProxyType(vars(o))

    def f(x):
        del o.n
        found = [*shown], shown.get("n", 5)
        o.n = 1
        return x + 1, found

    return _twice(f)


@p
def the_dict_of_attributes():
    o = Thing()
    names = vars(o)

    def f(x):
        o.n += 1
        y = x + names["n"]
        names["n"] = 5
        y = y * o.n
        o.n += 1
        names["m"] = o.n
        return y, o.m, names

    return _twice(f)


@p
def a_chain_of_maps_over_attributes():
    o = Thing()
    chain = collections.ChainMap(vars(o))
    shown = types.MappingProxyType(chain)

    def f(x):
        o.n += 1
        return x + chain["n"], shown["n"]

    return _twice(f)


@p
def the_dict_of_a_class():
    class Own(Thing):
        k = 1

    shown = vars(Own)

    def f(x):
        Own.k = Own.k + 1
        return x + shown["k"]

    return _twice(f)


@p
def the_dict_of_a_module():
    m = torch.nn.Linear(2, 2)
    m.n = 0
    shown = types.MappingProxyType(m.__dict__)

    def f(x):
        m.n += 1
        return x + shown["n"] + m.__dict__["n"]

    return _twice(f)


class Both(dict):
    """What is stored as an item is an attribute too, in a dict of its own."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


@p
def a_dict_with_attributes():
    def f(x, d):
        d["a"] = x + len(d)
        d["b"] = d.a * 2
        return d.b + d["a"], list(d), sorted(vars(d))

    return f, [(x, Both()), (x, Both(c=1)), (x, Both(a=2))]


@p
def globals_as_a_dict():
    names = {"G": 1}
    exec(
        "def f(x, names):\n    global G\n    G = G + 1\n    y = x + names['G']\n    names['G'] = 7\n    return y * G",
        names,
    )
    return names["f"], [(x, types.MappingProxyType(names)), (x, names), (x, names)]


@p
def proxies_made_inside():
    o = Thing()

    def f(x):
        shown, own = types.MappingProxyType(vars(o)), {"a": 1}
        inner = types.MappingProxyType(own)
        o.n += 1
        own["a"] = 2
        return x + shown["n"], inner["a"]

    return _twice(f)


@p
def a_proxy_of_another_dict():
    table = types.MappingProxyType({"n": 3})
    o = Thing()

    def f(x):
        o.n += 1
        o.table = {"n": o.n}
        return x + table["n"] + o.n

    return _twice(f)


@p
def slots_beside_a_dict():
    class Tight:
        __slots__ = ("__dict__", "_y", "x")

        @property
        def y(self):
            return self._y

        @y.setter
        def y(self, value):
            self._y = value

    tight = Tight()
    tight.x, tight.more = 1, 2

    def f(x):
        tight.x += 1
        tight.y = 3
        tight.other = 4
        return x + tight.x, len(vars(tight)), sorted(vars(tight)), "x" in vars(tight), tight.y

    return _twice(f)
