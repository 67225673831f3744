"""Symbolic numbers leave a frame as what they are in Python: bool, int or float, whichever way they go."""

from __future__ import annotations

import functools
import sys

import pytest
import torch

import flambeau


class _Net:
    value: object = None


_NET = _Net()
_GLOBAL: object = None


def _cell():
    held = None

    def put(value):
        nonlocal held
        held = value

    return put, lambda: held


_PUT, _LOOK = _cell()


def _global(value):
    global _GLOBAL
    _GLOBAL = value


def _raised(value):
    raise LookupError(value)


def _after_a_break(value):
    print(end="")
    _NET.value = value


def _made(value):
    def inner(given=value):
        return given, value

    return inner


WAYS = {
    "result": lambda value: value,
    "parts of the result": lambda value: {"a": [value, (value,)]},
    "attribute": lambda value: setattr(_NET, "value", value),
    "global": _global,
    "cell": lambda value: _PUT(value),
    "items": lambda value: ([].append(value), {"k": value}, [value for _ in range(2)]),
    "argument": lambda value: functools.partial(int, value).args,
    "unmodelled call": lambda value: print(value),
    "local after a break": _after_a_break,
    "exception": _raised,
    "iterator": lambda value: iter([value]),
    "closure": _made,
    "class": lambda value: (type(value), isinstance(value, bool), isinstance(value, int)),
    "one of two": lambda value: (value and 7, value or 7, not value),
}
KINDS = {
    "equal numbers": lambda t, n: n == 3,
    "compared sizes": lambda t, n: t.shape[0] > 3,
    "remainder": lambda t, n: t.numel() % 2 == 0,
    "truth": lambda t, n: bool(n),
    "both": lambda t, n: (n > 1) & (n < 5),
    "number": lambda t, n: n * 2,
    "size": lambda t, n: t.shape[0] + 1,
    "sum of truths": lambda t, n: (n > 1) + 1,
    "quotient": lambda t, n: n / 2,
    "quotient of a size": lambda t, n: t.shape[0] / 2,
    "rounded": lambda t, n: round(n / 2),
    "compared numbers": lambda t, n: n > 1,
}


def _plain(value):
    """The value with the classes of all its parts; what is made anew at every call is looked into."""
    if isinstance(value, (list, tuple)):
        return type(value), [_plain(part) for part in value]
    if isinstance(value, dict):
        return [(key, _plain(part)) for key, part in value.items()]
    if hasattr(value, "__next__"):
        return [_plain(part) for part in value]
    if hasattr(value, "__code__"):
        return _plain(value())
    return type(value), value


def _seen(function, size, n, capsys):
    _NET.value = None
    _global(None)
    _PUT(None)
    try:
        left, total = function(torch.ones(size), n)
        result = _plain(left), total.item()
    except LookupError as error:
        result = _plain(error.args)
    return result, [_plain(value) for value in (_NET.value, _GLOBAL, _LOOK())], capsys.readouterr().out


# From Python 3.12 on a comprehension is part of the frame, which cannot be cut inside of a loop.
BREAKS = ("unmodelled call", "local after a break") if sys.version_info >= (3, 12) else ()
LEFT_OUT = {way: (pytest.mark.falls_back("print() or input() is called"),) for way in BREAKS}
# A frame that raises has a graph only where the number is one that the graph computes.
ALONE = [(way, kind) for way in WAYS for kind in KINDS if way != "exception"]


@pytest.mark.parametrize(
    ("way", "kinds"),
    [
        *(pytest.param(way, "together", marks=LEFT_OUT.get(way, ())) for way in WAYS),
        *(pytest.param(way, kind, marks=(pytest.mark.slow, *LEFT_OUT.get(way, ()))) for way, kind in ALONE),
    ],
)
def test_a_number_keeps_its_class(way, kinds, capsys):
    leave = WAYS[way]
    make = KINDS.get(kinds)
    every = tuple(KINDS.values())

    def program(t, n):
        return [leave(kind(t, n)) for kind in ((make,) if make is not None else every)], -t.sum()

    compiled = flambeau.compile(program, dynamic=True)
    for size, n in ((3, 2), (4, 3), (5, 6), (2, 1)):
        assert _seen(compiled, size, n, capsys) == _seen(program, size, n, capsys)
