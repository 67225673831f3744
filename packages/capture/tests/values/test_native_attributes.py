"""Every attribute that objects of native classes have, and some that only their class has: what is read is what Python gives."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import importlib
import inspect

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
    "list of a class": "Kinds.List([1])",
    "tuple of a class": "Kinds.Tuple((1,))",
    "dict of a class": "Kinds.Dict(a=1)",
    "defaultdict of a class": "Kinds.Default(list)",
    "deque of a class": "Kinds.Deque([1], 4)",
    "set of a class": "Kinds.Set([1])",
    "int of a class": "Kinds.Int(3)",
    "str of a class": "Kinds.Str('ab')",
    "partial of a class": "Kinds.Partial(max, 1)",
    "counter": "collections.Counter('aab')",
    "chain map": "collections.ChainMap({'a': 1})",
    "exception": "KeyError('a')",
    "os error": "OSError(2, 'no')",
    "stop": "StopIteration(3)",
    "exception of a class": "Kinds.Error('a', 2)",
    "slotted": "Kinds.Slotted()",
    "data class": "Kinds.Data(1)",
    "enum": "Kinds.Colour.RED",
    "flag": "Kinds.Bits.A",
    "namespace": "types.SimpleNamespace(a=1)",
    "function": "function",
    "bound method": "Kinds.Data(1).method",
    "builtin": "len",
    "class": "Kinds.Data",
    "native class": "list",
    "module": "functools",
    "dtype": "torch.float32",
    "device": "torch.device('cpu')",
    "size of a tensor": "torch.ones(2, 3).shape",
    "generator": "(i for i in [1])",
    "none": "None",
    "ellipsis": "...",
    "not implemented": "NotImplemented",
    "code": "function.__code__",
    "property": "Kinds.Data.double",
    "range iterator": "iter(range(3))",
    "count": "itertools.count(2)",
    "bytearray": "bytearray(b'ab')",
    "date": "datetime.date(2020, 1, 2)",
    "fraction": "fractions.Fraction(1, 3)",
    "pattern": "re.compile('a+')",
    "match": "re.match('a', 'aa')",
    "weak reference": "weakref.ref(Kinds.Data)",
    "item getter": "operator.itemgetter(1)",
    "format spec": "string.Template('$a')",
    "path": "pathlib.PurePosixPath('/a/b.c')",
    "dtype of numpy": "numpy.dtype('f4')",
    "number of numpy": "numpy.float32(2)",
    "optional": "typing.Optional[int]",
    "literal": "typing.Literal['a', 'b']",
    "annotated": "typing.Annotated[int, 3]",
    "generic alias": "typing.List[int]",
    "union": "int | None",
    "any": "typing.Any",
    "special form": "typing.Union",
}
MODULES = {
    name: importlib.import_module(name)
    for name in (
        "datetime",
        "fractions",
        "itertools",
        "numpy",
        "operator",
        "pathlib",
        "re",
        "string",
        "types",
        "typing",
        "weakref",
    )
}
Point = collections.namedtuple("Point", ["x", "y"])


def function(a: int, b: int = 2, *, c: int = 3) -> int:
    """Words."""
    return a + b + c


class Kinds:
    """Classes of programs, most of them over native ones."""

    List, Dict, Default = (
        type(base.__name__.title(), (base,), {"own": 1}) for base in (list, dict, collections.defaultdict)
    )
    Deque, Set, Tuple, Int, Str = (
        type(base.__name__.title(), (base,), {"own": 1}) for base in (collections.deque, set, tuple, int, str)
    )
    Partial, Error = type("Partial", (functools.partial,), {}), type("Error", (ValueError,), {"own": 1})
    Colour, Bits = enum.Enum("Colour", "RED BLUE"), enum.Flag("Bits", "A B")

    class Slotted:
        __slots__ = ("a", "b")

        def __init__(self):
            self.a = 1

    @dataclasses.dataclass
    class Data:
        a: int
        b: int = 2

        def method(self):
            return self.a

        @property
        def double(self):
            return 2 * self.a


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
    text = f"def f(x, value):\n    value = {'value' if given else expression}\n    there = hasattr(value, {name!r})\n    read = getattr(value, {name!r}, 'absent')\n    return x + 1, (there, type(read).__name__, isinstance(read, type)), read\n"
    scope = {**MODULES, **globals()}
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
    """What such an object has, and what it has not; who watches it and where it lies are nothing that a program can rely on."""
    _, value = function_of(MAKERS[kind], "missing", True)
    return sorted({*dir(value), *MORE} - {"__weakref__", "__array_interface__", "data"})


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
