"""Classes that have a native method of another class, or of another name, under a special one's name; and builtin functions, which do not bind."""

from __future__ import annotations

import torch

from . import Programs

x = torch.arange(4.0)
p = PROGRAMS = Programs()


def _borrows(base, name, method, made, use):
    """A program that uses an object of a class which has this method under this name; its contents are compared."""
    cls = type(f"Borrows{name}", (base,), {name: method})

    def f(x, o):
        try:
            found = use(o)
        except (TypeError, KeyError, ValueError) as error:
            found = type(error).__name__
        return x + 1, found, type(o).__name__, base.__len__(o)

    def borrowed():
        return f, [(x, cls(made)), (x, cls(made))]

    borrowed.__name__ = f"{method.__name__}_as_{name.strip('_')}"
    return borrowed


for _case in (
    (list, "append", list.remove, [3, 1], lambda o: o.append(1)),
    (list, "__len__", list.__sizeof__, [3, 1], lambda o: len(o) > 2),
    (dict, "get", dict.pop, {"a": 1}, lambda o: o.get("a")),
    (dict, "__iter__", dict.values, {"a": 1}, lambda o: [*o]),
    (dict, "__contains__", dict.__getitem__, {"a": 1}, lambda o: "b" in o),
    (list, "__iter__", torch.negative, [3, 1], lambda o: [*o]),
    (list, "append", list.append, [3, 1], lambda o: o.append(1)),  # what it would inherit anyway
):
    p(_borrows(*_case))


class Counted(dict):
    """Its own way to be iterated over and asked, which notes that it was."""

    asked = 0

    def __iter__(self):
        type(self).asked += 1
        return iter(("other",))

    def __contains__(self, key):
        type(self).asked += 1
        return key == "other"


@p
def keys_that_the_class_tells_otherwise():
    def f(x, o):
        Counted.asked = 0
        return x + len(o), "a" in o, [*o], o.get("a"), list(o.items()), Counted.asked

    return f, [(x, Counted(a=1)), (x, Counted(a=1)), (x, Counted(b=1, c=2))]
