"""Classes that have a native method of another class, or of another name, under a special one's name; and builtin functions, which do not bind."""

from __future__ import annotations

import torch

x = torch.arange(4.0)
PROGRAMS = []


def p(make):
    """Register a program."""
    PROGRAMS.append(make)
    return make


def _using(cls, made, use):
    """The object's class has what it has; each call uses it, and its contents are compared."""

    def f(x, o):
        try:
            found = use(o)
        except (TypeError, KeyError, ValueError) as error:
            found = type(error).__name__
        return x + 1, found, type(o).__name__, cls.__base__.__len__(o)

    return lambda: (f, [(x, made()), (x, made())])


class Appends(list):
    append = list.remove


class Sized(list):
    __len__ = list.__sizeof__


class Gets(dict):
    get = dict.pop


class Walks(dict):
    __iter__ = dict.values


class Holds(dict):
    __contains__ = dict.__getitem__


class Calls(list):
    __iter__ = torch.negative


class Counted(dict):
    """Its own way to be iterated over and asked, which notes that it was."""

    asked = 0

    def __iter__(self):
        type(self).asked += 1
        return iter(("other",))

    def __contains__(self, key):
        type(self).asked += 1
        return key == "other"


class Same(list):
    """What it would inherit anyway."""

    append = list.append


for _cls, _made, _use in (
    (Appends, lambda: Appends([3, 1]), lambda o: o.append(1)),
    (Sized, lambda: Sized([3, 1]), lambda o: len(o) > 2),
    (Gets, lambda: Gets(a=1), lambda o: o.get("a")),
    (Walks, lambda: Walks(a=1), lambda o: [*o]),
    (Holds, lambda: Holds(a=1), lambda o: "b" in o),
    (Calls, lambda: Calls([3, 1]), lambda o: [*o]),
    (Same, lambda: Same([3, 1]), lambda o: o.append(1)),
):
    p(_using(_cls, _made, _use)).__name__ = f"{_cls.__name__.lower()}_by_another"


@p
def keys_that_the_class_tells_otherwise():
    def f(x, o):
        Counted.asked = 0
        return x + len(o), "a" in o, [*o], o.get("a"), list(o.items()), Counted.asked

    return f, [(x, Counted(a=1)), (x, Counted(a=1)), (x, Counted(b=1, c=2))]
