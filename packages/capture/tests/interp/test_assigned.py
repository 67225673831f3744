"""Attributes of functions, methods, classes, partials and modules that are assigned or deleted between two calls.

Objects x attributes x changes, and what is called or asked x what is assigned: as in plain Python before and after, in frames whose
objects are globals and in closures.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

OBJECTS = (
    "plain", "wrapped", "cached", "K", "k.m", "mod", "k", "K.m", "K.c", "k.c", "K.s", "part", "bound", "part.func", "bound.__func__",
    "wrapped.__wrapped__", "K.__dict__['m']", "K.__dict__['c']",
)  # fmt: skip
ATTRIBUTES = {
    "__wrapped__": "other", "__name__": "'n2'", "__qualname__": "'q2'", "__doc__": "'d2'", "__module__": "'m2'", "__annotations__": "{'z': int}",
    "__defaults__": "(7,)", "__kwdefaults__": "{'b': 8}", "__code__": "other.__code__", "__type_params__": "()", "extra": "6",
    "__dict__": "{'extra': 9}", "more": "4",
}  # fmt: skip
CALLS = (
    "plain(x)", "plain(x, 1)", "plain(x, b=1)", "one(x, 1)", "one(x)", "one()", "named()", "wrapped(x)", "cached(1)", "k.m()", "k.m(3)", "K.m(k)", "k.c()",
    "K.c()", "K.s()", "part()", "part(b=2)", "bound()", "sub.m()", "super(Sub, sub).m()", "k.p", "k.more", "K.__bases__", "K.__mro__",
    "type(k).__name__", "repr(K)", "f'{K}'", "part.keywords", "part.func", "K.c.__func__.__name__", "functools.wraps(plain)(other).__name__",
    "inspect.signature(plain)", "inspect.unwrap(wrapped).__name__", "plain.__defaults__", "plain.__annotations__", "mod.val", "mod.__doc__",
)  # fmt: skip
CHANGES = (
    "plain.__defaults__ = None", "plain.__defaults__ = (7,)", "plain.__defaults__ = (2, 9)", "plain.__kwdefaults__ = {'b': 5}",
    "plain.__kwdefaults__ = None", "plain.__code__ = two.__code__", "plain.__annotations__ = {'z': 3}", "plain.__annotations__['z'] = 3",
    "plain.__name__ = 'zz'", "one.__defaults__ = (2, 9)", "one.__defaults__ = None", "one.__kwdefaults__ = {'a': 1}", "named.__kwdefaults__ = {'a': 5}",
    "wrapped.__wrapped__ = other", "wrapped.__code__ = other.__code__", "wrapped.__closure__[0].cell_contents = other",
    "K.m.__defaults__ = (9,)", "K.c.__func__.__defaults__ = (9,)", "K.s.__defaults__ = (9,)", "K.m.__code__ = other.__code__", "K.m = other", "k.m = other",
    "K.p = 3", "K.__bases__ = (Other,)", "K.__name__ = 'Z'", "K.__qualname__ = 'Z'", "K.more = 3", "k.more = 3", "k.__class__ = Other", "Sub.__bases__ = (Other,)",
    "part.keywords['a'] = 9", "part.keywords.clear()", "part.__setstate__((two, (x * 2,), {'a': 6}, {}))", "part.func.__name__ = 'u'",
    "K.c.__func__.__name__ = 'e'", "mod.val = 9", "del mod.val", "mod.__doc__ = 'n'", "del K.m", "cached.__wrapped__ = other",
)  # fmt: skip
PAIRS = tuple(itertools.product(CALLS, CHANGES))
SOURCE = """
import functools, inspect, types, torch
x = torch.ones(2)
def other(x, a=3):
    "other"
    return x * a
def two(x, a=5, *, b=6): return x - a - b
def one(x, a, q=2): return x * a
def named(*, a): return a
def note(fn):
    @functools.wraps(fn)
    def inner(*args, **named): return fn(*args, **named)
    return inner
@note
def wrapped(x, a=2):
    "doc"
    return x * a
def plain(x, a: int = 2, *, b=3):
    "doc"
    return x * a + b
plain.extra = 5
class Base0: pass
class Base(Base0): pass
class Other(Base0):
    more = 44
    def m(self, x=1): return x + 100
class K(Base):
    "doc"
    def m(self, x=1): return x
    @classmethod
    def c(cls, x=1): return x
    @staticmethod
    def s(x=1): return x
    @property
    def p(self): return 1
class Sub(K): pass
k, sub = K(), Sub()
bound = k.m
part = functools.partial(plain, torch.ones(1), a=4)
@functools.lru_cache
def cached(v): return v
mod = types.ModuleType("some", "moddoc")
mod.val = 3
"""


def _text(found):
    """A text without addresses and without what Python itself puts into every namespace."""
    if isinstance(found, dict):
        found = {
            key: _text(value) for key, value in found.items() if key not in ("__dict__", "__weakref__", "__builtins__")
        }
    return found.__qualname__ if hasattr(found, "__qualname__") else repr(found).split(" at 0x")[0]


def _seen(expression, change, local, compiled):
    """What the expression gives in two calls before the change and two after it; None where Python does not take the change."""
    program = f"lambda x: ({expression}, x + 1), lambda: exec({change!r}, globals(), space)"
    if local:
        inside = "".join(f"    {line}\n" for line in SOURCE.splitlines())
        text = f"def outer():\n{inside}    space = locals()\n    return {program}\n"
    else:
        text = f"{SOURCE}\nspace = globals()\ndef outer(): return {program}\n"
    names = {"__name__": "__main__"}
    exec(text, names)
    function, assign = names["outer"]()
    function = make_region(function, eager, suppress_errors=False) if compiled else function
    found = []
    for turn in range(4):
        if turn == 2:
            try:
                assign()
            except (TypeError, ValueError, AttributeError, KeyError):
                return None
        try:
            found.append(_text(function(torch.ones(2))[0]))
        except Exception as error:
            found.append((type(error).__name__, str(error).split(" at 0x")[0]))
    return found


def _compare(cases):
    different = []
    for expression, change, local in cases:
        expected = _seen(expression, change, local, False)
        if expected is not None:
            found = _seen(expression, change, local, True)
            different += [(expression, change, expected, found)] * (found != expected)
    assert not different, different


@pytest.mark.parametrize(
    ("owner", "local"),
    [
        *((owner, False) for owner in OBJECTS[:6]),
        *(pytest.param(owner, False, marks=pytest.mark.slow) for owner in OBJECTS[6:]),
        *(pytest.param(owner, True, marks=pytest.mark.slow) for owner in OBJECTS),
    ],
)
def test_an_attribute_that_is_assigned_or_deleted(owner, local):
    read = "getattr({0}, {1!r}, 'none'), hasattr({0}, {1!r})"
    for name, value in ATTRIBUTES.items():
        changes = (f"{owner}.{name} = {value}", f"del {owner}.{name}")
        _compare((f"({read.format(owner, name)})", change, local) for change in changes)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 16))])
def test_what_is_assigned_is_what_runs(part):
    _compare((*pair, False) for pair in PAIRS[part::16])


@pytest.mark.parametrize(
    "change", ["cached.__wrapped__ = other", "del cached.__wrapped__", "mod.__name__ = 3", "del mod.__name__"]
)
def test_what_was_assigned_before_the_first_call(change):
    names = {"__name__": "__main__"}
    exec(f"{SOURCE}\n{change}\nmod.val = 3\ndef function(x): return cached(1) + mod.val, x + 1", names)
    region = make_region(names["function"], eager, suppress_errors=False)
    for _ in range(2):
        assert region(torch.ones(2))[0] == names["function"](torch.ones(2))[0] == 4
