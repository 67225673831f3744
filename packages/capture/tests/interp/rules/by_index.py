"""Objects that have `__getitem__` and little else: iteration both ways, membership, what is asked before a list is made of them."""

from __future__ import annotations

import sys

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


class Row:
    def __init__(self, *items):
        self.items = list(items)
        self.asked = []

    def __len__(self):
        self.asked.append("len")
        return len(self.items)

    def __getitem__(self, place):
        self.asked.append(place)
        return self.items[place]


class NoIter(Row):
    __iter__ = None


class NoContains(Row):
    __contains__ = None


class NoReversed(Row):
    __reversed__ = None


class Negative(Row):
    def __len__(self):
        return 0 - self.items[0]


class Worded(Row):
    def __len__(self):
        return str(self.items)


class IterOfNumber(Row):
    def __iter__(self):
        return 3


class WideTruth(Row):
    def __bool__(self):
        return self.items[0]


class OfProperty(Row):
    __len__ = property(lambda self: lambda: 2)


class Keyed(Row):
    def __getitem__(self, place):
        if place == 1:
            raise KeyError(place)
        return self.items[place]


class Stopping(Row):
    def __getitem__(self, place):
        if place == 0:
            raise StopIteration(place)
        return self.items[place]


class Hinting:
    def __init__(self, asked):
        self.asked = asked

    def __iter__(self):
        self.asked.append("iter")
        return iter((1, 2))

    def __length_hint__(self):
        self.asked.append("hint")
        return 7


_ACTIONS = {
    "list": list,
    "tuple": tuple,
    "sorted": sorted,
    "extended": lambda o: [0, *o],
    "extend": lambda o: [].extend(o),
    "iterated": lambda o: list(iter(o)),
    "reversed": lambda o: list(reversed(o)),
    "sum": sum,
    "sum_reversed": lambda o: sum(reversed(o)),
    "first": lambda o: (next(iter(o)), next(reversed(o))),
    "ended": lambda o: (list(r := reversed(o)), list(r), next(r, 7)),
    "contains": lambda o: (2 in o, 5 in o),
    "spread": lambda o: (lambda *parts: parts)(*o),
    "length": len,
    "truth": bool,
    "set": set,
    "joined": lambda o: list(zip(o, reversed(o))),
}
_CLASSES = (Row, NoIter, NoContains, NoReversed, Negative, Worded, IterOfNumber, WideTruth, OfProperty, Keyed, Stopping)


def _program(cls, names):
    def make():
        def f(x, row, name):
            y = x + 1
            try:
                found = _ACTIONS[name](row)
            except Exception as error:  # of any class: it is compared
                found = repr(error)
            return y * 2, found, row.asked

        return f, [(x, cls(1, 2, 3), name) for name in names]

    make.__name__ = cls.__name__
    return make


@p
def reversed_across_a_break():
    def f(x, row, taken):
        found = reversed(row)
        first = [next(found, 0) for _ in range(taken)]
        y = x + 1
        first.append(sys.getswitchinterval() > 0)  # no trace goes into it
        return y * 2, first, list(found), next(found, 7)

    return f, [(x, Row(1, 2, 3), taken) for taken in (0, 1, 3, 4)]


for _cls in _CLASSES:
    p(_program(_cls, [*_ACTIONS]))


@p
def hints():
    def f(x):
        asked = []
        o = Hinting(asked)
        made = [list(o), tuple(o), {*o}, sorted(o), [*o], sum(o), max(o)]
        return x + 1, made, asked

    return f, [(x,)]


@p
def a_break_between_the_items():
    def f(x, row):
        for item in reversed(row):
            x = x * item
            print(item)
        rest = iter(row)
        x = x + next(rest)
        print("middle")
        return x, [*rest], row.asked

    return f, [(x, Row(1, 2, 3)), (x, Row(1, 2, 3))]


@p
def a_row_that_shrinks_meanwhile():
    def f(x, row):
        found = []
        for item in reversed(row):
            row.items.pop()
            found.append(item)
        walk = iter(row)
        found.append(list(walk))
        row.items.append(9)
        return x + 1, found, list(walk), row.asked

    return f, [(x, Row(1, 2, 3, 4))]


@p
def modules_in_reverse():
    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.ReLU(), torch.nn.Softplus()

        def __len__(self):
            return 2

        def __getitem__(self, place):
            return (self.first, self.second)[place]

    layers = (Layers(), torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Softplus()]))

    def f(x, which):
        for layer in reversed(layers[which]):
            x = layer(x)
        return x

    return f, [(x, 0), (x, 1)]


@p
def containers_are_filled_anew():
    def f(x, l, s, n):
        made, own = [3, 1, 2], {1, 2}
        told = []
        for held in (made, l):
            held.__init__([n])
            told.append(list(held))
            held.__init__(held)
            told.append(list(held))
        made.__init__()
        for held in (own, s):
            held.__init__([n, 9])
            told.append(sorted(held))
        return x + 1, told, made, own

    return f, [lambda: (x, [1, 2], {4}, 2), lambda: (x, [], {5, 6}, 3)]


@p
def errors_of_subscripts():
    def f(x, l, n):
        told = []
        for subscript in (
            lambda: l[:: n - n],
            lambda: (1, 2)[:: n - n],
            lambda: l.__setitem__(slice(None, None, n - n), [1]),
            lambda: l.__delitem__(slice(None, None, n - n)),
            lambda: range(5)[n + 9],
            lambda: range(5)[-n - 9],
            lambda: x.shape[n + 9],
        ):
            try:
                told.append(subscript())
            except (ValueError, IndexError) as error:
                told.append((type(error).__name__, str(error)))
        return x + 1, told

    return f, [lambda: (x, [1, 2], 2), lambda: (x, [1, 2], 3), lambda: (x, [1, 2], 4)]
