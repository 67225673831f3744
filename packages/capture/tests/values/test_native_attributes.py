"""Every attribute that objects of native classes have, and some that only their class has: what is read is what Python gives."""

from __future__ import annotations

import collections
import functools
import inspect
import types

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

MAKERS = {
    "list": "[1, 2]",
    "tuple": "(1, 2)",
    "deque": "collections.deque([1], maxlen=3)",
    "unbounded deque": "collections.deque([1])",
    "size": "torch.Size([2, 3])",
    "dict": "{'a': 1}",
    "defaultdict": "collections.defaultdict(list, a=[1])",
    "ordered dict": "collections.OrderedDict(a=1)",
    "proxy": "types.MappingProxyType({'a': 1})",
    "keys": "{'a': 1}.keys()",
    "items": "{'a': 1}.items()",
    "set": "{1, 2}",
    "frozenset": "frozenset([1])",
    "list iterator": "iter([1])",
    "zip": "zip([1], [2])",
    "enumerate": "enumerate([1])",
    "range": "range(1, 7, 2)",
    "slice": "slice(1, 3)",
    "int": "5",
    "bool": "True",
    "float": "2.5",
    "complex": "1 + 2j",
    "str": "'text'",
    "bytes": "b'text'",
    "partial": "functools.partial(max, 1)",
    "method of a list": "[1].append",
    "named tuple": "Point(1, 2)",
}
Point = collections.namedtuple("Point", ["x", "y"])
SIMPLE = (int, float, complex, str, bytes, bool, type(None), tuple, list, dict)
#: Of the class alone, of other kinds of objects, and of none.
MORE = (
    "__name__",
    "__qualname__",
    "mro",
    "__mro__",
    "__dict__",
    "__call__",
    "__self__",
    "__func__",
    "fields",
    "maxlen",
    "start",
    "missing",
)


def looked_at(value):
    """What a program can tell of an attribute."""
    return (type(value).__name__, value) if type(value) in SIMPLE else (type(value).__name__, callable(value))


def function_of(expression, name, given):
    """Reads one attribute of an object that is given, or made inside."""
    text = f"def f(x, value):\n    value = {'value' if given else expression}\n    there = hasattr(value, {name!r})\n    return x + 1, there, getattr(value, {name!r}, 'absent')\n"
    scope = {"collections": collections, "functools": functools, "types": types, "torch": torch, "Point": Point}
    exec(text, scope)
    return scope["f"], eval(expression, scope)


def differs(kind, name, given):
    """The two answers where they differ."""
    function, value = function_of(MAKERS[kind], name, given)
    x = torch.ones(2)
    found = make_region(function, eager)(x, value)[1:]
    wanted = function(x, value)[1:]
    told = [(there, looked_at(read)) for there, read in (found, wanted)]
    return told if told[0] != told[1] else None


def names_of(kind):
    """What such an object has, and what it has not."""
    _, value = function_of(MAKERS[kind], "missing", True)
    return sorted({*dir(value), *MORE})


@pytest.mark.parametrize("given", [True, False], ids=["given", "made"])
@pytest.mark.parametrize("kind", MAKERS)
def test_data_and_names_of_native_objects(kind, given):
    """Those that are no methods, each by itself."""
    _, value = function_of(MAKERS[kind], "missing", True)
    names = [n for n in names_of(kind) if not inspect.isroutine(getattr(type(value), n, None)) or n in MORE]
    wrong = {name: told for name in names if (told := differs(kind, name, given))}
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False], ids=["given", "made"])
@pytest.mark.parametrize("kind", MAKERS)
def test_all_names_of_native_objects(kind, given):
    """Methods too."""
    wrong = {name: told for name in names_of(kind) if (told := differs(kind, name, given))}
    assert not wrong


def test_the_limit_of_a_deque_is_guarded():
    """Also where it is not read, but decides what an append drops."""

    def function(x, line):
        line.append(3)
        return x + len(line), line.maxlen

    region = make_region(function, eager)
    for limit in (2, None, 5, 2):
        found, wanted = (f(torch.ones(1), collections.deque([1, 2], maxlen=limit)) for f in (region, function))
        assert found == wanted
