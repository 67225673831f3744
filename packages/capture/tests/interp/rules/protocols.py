"""What Python asks of objects and functions, and what they may answer: defaults, keywords, mappings, lengths, texts, indices."""

from __future__ import annotations

import collections
import operator

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


@p
def a_function_that_gets_other_defaults():
    def inner(a, b=2, *, c=3):
        return a, b, c

    def f(x, n):
        told = [inner(1)]
        inner.__defaults__ = (n,)
        told.append(inner(1))
        inner.__kwdefaults__ = {"c": n + 1}
        told.append(inner(1))
        inner.__code__ = (lambda a, b=2, *, c=3: ("other", a, b, c)).__code__
        return x + 1, told, inner(1)

    return f, [(x, 2), (x, 5)]


@p
def names_of_keyword_arguments():
    def inner(**named):
        return named

    def f(x, keys):
        try:
            told = inner(**dict.fromkeys(keys, 1))
        except TypeError as error:
            told = str(error)
        return x + 1, told

    return f, [(x, ["a", "b"]), (x, [1, "b"]), (x, [1])]


@p
def a_number_as_the_name_of_a_keyword_argument():
    def inner(**named):
        return named

    def f(x, n):
        try:
            told = inner(**{n: 1})
        except TypeError as error:
            told = str(error)
        return x + 1, told

    return f, [(x, 2), (x, 3), (x, 4)]


@p
def mappings_with_methods_of_their_own():
    asked = []

    class Keys(dict):
        def keys(self):
            asked.append("keys")
            return ["d", "z"]

        def __getitem__(self, key):
            asked.append(key)
            return key * 2

    class Iterated(Keys):
        def __iter__(self):
            asked.append("iter")
            return iter(["q"])

    class Ordered(collections.OrderedDict, Keys):
        keys, __getitem__ = Keys.keys, Keys.__getitem__

    def inner(*args, **named):
        return named

    held = (Keys(a=1), Iterated(a=1), Ordered(a=1))

    def f(x, which):
        given = held[which]
        found = {}
        found.update(given)
        return x + 1, inner(**given), {**given}, dict(given), found, list(asked)

    return f, [(x, which) for which in range(3)]


@p
def what_a_list_of_the_rest_asks():
    asked = []

    class Row:
        def __init__(self, *items):
            self.items = items

        def __len__(self):
            asked.append("len")
            return len(self.items)

        def __getitem__(self, place):
            asked.append(place)
            return self.items[place]

    row = Row(1, 2, 3)

    def f(x, n):
        a, *b = row
        *c, d, e = row
        try:
            p, q, r, s, *t = row
        except ValueError as error:
            return x + n, a, b, c, d, e, str(error), list(asked)

    return f, [(x, 2), (x, 3)]


@p
def methods_that_give_what_they_may_not():
    methods = {"__str__": lambda self: 3, "__repr__": lambda self: 4, "__index__": lambda self: "x"}
    wrong = type("Wrong", (), methods)()

    asks = (str, repr, ascii, range, [1, 2].__getitem__, lambda v: f"{v}", lambda v: f"{v!r}", lambda v: [1][v])

    def f(x, which):
        try:
            told = asks[which](wrong)
        except TypeError as error:
            told = str(error)
        return x + which, told

    return f, [(x, which) for which in range(8)]


@p
def operator_call():
    def inner(a, *, b):
        return a, b

    def f(x, n):
        return operator.call(torch.add, x, n), operator.call(inner, 1, b=n), operator.call(dict, a=n)

    return f, [(x, 2), (x, 3), (x, 4)]
