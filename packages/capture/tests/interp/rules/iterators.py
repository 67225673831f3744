"""Where an iterator ends, and whether it gives more when what it draws from does: those of containers that grow, of `itertools`, of functions that
raise StopIteration, over a break too."""

from __future__ import annotations

import collections
import functools
import itertools
import operator

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


class Again:
    """An iterator that comes to an end several times."""

    def __init__(self, *parts):
        self.parts = [list(part) for part in parts]

    def __iter__(self):
        return self

    def __next__(self):
        if not self.parts:
            raise StopIteration
        if not self.parts[0]:
            self.parts.pop(0)
            raise StopIteration
        return self.parts[0].pop(0)


def _again():
    return Again([1, 2], [3], [4, 5, 6], [7])


def _stops(v):
    if v == 2:
        raise StopIteration(v)
    return v


def _looked_at(name, make):
    """What an iterator gives, beyond its ends; which error it ends with; and the same with a break in between."""

    def program():
        def f(x, n):
            drawn = []
            found = make(drawn, n)
            given = [next(found, "end") for _ in range(9)]
            other, told = make(drawn, n), []
            for _ in range(4):
                try:
                    told.append(next(other))
                except StopIteration as error:
                    told.append(error.args)
            third = make(drawn, n)
            first = next(third, 0)
            print("cut")
            return x + n, given, told, first, [next(third, "end") for _ in range(4)], drawn

        return f, [(x, 2), (x, 3), (x, 2)]

    program.__name__ = f"ends_{name}"
    PROGRAMS.append(program)


_looked_at("object", lambda drawn, n: _again())
_looked_at("chain", lambda drawn, n: itertools.chain(_again(), [9], _again()))
_looked_at("chain of several", lambda drawn, n: itertools.chain.from_iterable(Again([[1], [2]], [[3]])))
_looked_at("islice", lambda drawn, n: itertools.islice(_again(), 1, 9, n))
_looked_at("pairwise", lambda drawn, n: itertools.pairwise(_again()))
_looked_at("takewhile", lambda drawn, n: itertools.takewhile(lambda v: v < 6, _again()))
_looked_at("dropwhile", lambda drawn, n: itertools.dropwhile(lambda v: v < 5, _again()))
_looked_at("groups", lambda drawn, n: ((k, list(g)) for k, g in itertools.groupby(_again())))
_looked_at("groupby", lambda drawn, n: map(operator.itemgetter(0), itertools.groupby(_again(), lambda v: v // n)))
_looked_at("a function", lambda drawn, n: iter(functools.partial(next, _again(), 3), 3))
_looked_at("a function that stops", lambda drawn, n: iter(_again().__next__, 9))
_looked_at("cycle", lambda drawn, n: itertools.cycle(drawn.append(v) or v for v in range(3)))
_looked_at("cycle of many", lambda drawn, n: itertools.cycle(itertools.count(n)))
_looked_at("map", lambda drawn, n: map(_stops, [1, 2, 3]))
_looked_at("filter", lambda drawn, n: filter(_stops, [1, 2, 3]))
_looked_at("starmap", lambda drawn, n: itertools.starmap(_stops, [(1,), (2,), (3,)]))
_looked_at("accumulate", lambda drawn, n: itertools.accumulate([2, 2, 3], lambda a, b: _stops(b)))


CONTAINERS = {
    "list": (lambda: [1, 2], lambda c, n: c.append(n)),
    "dict": (lambda: {1: 2}, lambda c, n: c.update({n + 5: 1})),
    "set": (lambda: {1}, lambda c, n: c.add(n + 7)),
    "deque": (lambda: collections.deque([1]), lambda c, n: c.append(n)),
    "bytearray": (lambda: bytearray(b"ab"), lambda c, n: c.append(n)),
}
WALKS = {"iter": iter, "enumerate": enumerate, "map": lambda c: map(str, c), "chain": itertools.chain}


def _grows(name, make, grow, walk, cut):
    """A container that grows when an iterator over it has ended."""

    def program():
        def f(x, n):
            held = make()
            found = walk(held)
            given = [next(found, "end") for _ in range(len(held) + 1)]
            if cut:
                print("cut")
            grow(held, n)
            try:
                given.append(next(found, "more"))
            except RuntimeError as error:
                given.append(str(error))
            return x + n, given, len(held)

        return f, [(x, 2), (x, 3)]

    program.__name__ = f"grows_{name}{'_cut' * cut}"
    PROGRAMS.append(program)


for _name, (_make, _grow) in CONTAINERS.items():
    for _how, _walk in WALKS.items():
        for _cut in (False, True):
            _grows(f"{_name}_{_how}", _make, _grow, _walk, _cut)


@p
def backwards_over_what_changes():
    def f(x, l, d):
        found, over, shrinks = reversed(l), [reversed(d), reversed(d.items())], reversed(l)
        first = next(found)
        l[0] = 7
        given = list(found)
        l.append(4)
        del l[2:]
        after = [next(shrinks, "end"), next(shrinks, "end")]
        d["new"] = 1
        told = []
        for one in over:
            try:
                told.append(next(one))
            except RuntimeError as error:
                told.append(str(error))
        return x + 1, first, given, next(found, "end"), after, told

    return f, [lambda: (x, [1, 2, 3], {"a": 1}), lambda: (x, [5, 6, 7, 8], {})]


@p
def backwards_over_a_break():
    def f(x, l):
        found, spent = reversed(l), reversed(l)
        given = [next(found), list(spent)]
        l.append(9)
        print("cut")
        l[0] = 8
        return x + 1, given, list(found), list(spent), spent

    return f, [lambda: (x, [1, 2, 3]), lambda: (x, [4, 5])]
