"""Random expressions over objects of native classes: operators, builtins, methods, items, unpacking; results and errors are Python's."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import random
import re
import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

OBJECTS = (
    "[1, 2]", "[]", "['b', 'a']", "(1, 2)", "()", "collections.deque([1, 2, 3], maxlen=3)", "torch.Size([2, 3])", "{'a': 1, 'b': 2}", "{1: 'x'}", "{}",
    "collections.defaultdict(list, a=[1])", "collections.OrderedDict(a=1, b=2)", "collections.Counter('aab')", "{1, 2}", "set()", "frozenset([2, 3])", "range(1, 7, 2)", "slice(0, 2)",
    "0", "1", "-3", "5", "True", "False", "2.5", "0.0", "-1.5", "float('inf')", "1 + 2j", "'ab'", "''", "'a b'", "b'ab'", "None", "...", "Point(1, 2)", "Pair(1)", "Kind.RED",
    "iter([1, 2])", "zip([1], [2])", "Box([1, 2])", "Text('ab')", "Whole(3)", "functools.partial(max, 1)", "int", "list", "len", "lambda v: v", "{'a': 1}.keys()", "{'a': 1}.items()", "[[1], [2]]",
)  # fmt: skip
BINARY = ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">=", "is", "is not", "in", "not in", "and", "or")  # fmt: skip
UNARY = ("-{}", "+{}", "~{}", "not {}")
CALLS = (
    "len({})", "list({})", "tuple({})", "dict({})", "set({})", "frozenset({})", "sorted({})", "sum({})", "min({})", "max({})", "any({})", "all({})", "repr({})", "str({})", "bool({})", "int({})", "float({})",
    "abs({})", "round({})", "hash({}) is not None", "list(reversed({}))", "list(enumerate({}))", "list(zip({}, {}))", "list(map(str, {}))", "divmod({}, {})", "pow({}, {})", "isinstance({}, (int, list, str))", "callable({})", "type({})",
    "format({})", "'%s %r' % ({}, {})", "'{{}}'.format({})", "[*{}]", "{{**{}}}", "({})[0]", "({})[-1]", "({})['a']", "({})[1:]", "({})[::-1]", "({})[{}]", "max({}, {})", "min({}, {}, key=str)", "sum({}, {})",
    "next(iter({}))", "iter({}) is iter({})", "getattr({}, 'real', 7)", "hasattr({}, '__len__')", "complex({})", "bytes({})", "chr({})", "ord({})", "bin({})", "range({})[-1]", "slice({}).stop", "sorted({}, reverse=True)", "[v for v in {}]", "{{k: 1 for k in {}}}",
    "({})({})", "({} if {} else {})", "print({})", "(lambda v, w: id(v) == id(w))({}, {})", "zip(*{})", "list(zip(*{}))", "collections.Counter({})", "collections.deque({}, 2)", "dict.fromkeys({})", "{} < {} < {}", "str.join('-', {})", "list.index({}, 1)", "isinstance({}, {})", "issubclass({}, int)",
    "functools.reduce(lambda a, b: [a, b], {})", "enumerate({}).__next__()", "operator.add({}, {})", "operator.contains({}, {})", "operator.index({})", "operator.length_hint({})", "object.__repr__({})[:1]", "object.__format__({}, '')", "dict.get({}, 1)", "list.__len__({})", "int.__and__({}, {})", "dict.__setitem__({}, 'a', {})", "object.__eq__({}, None)", "tuple.__getitem__({}, 0)", "str.upper({})", "list.append({}, {})", "operator.itemgetter(0)({})", "itertools.chain({}, {}).__next__()", "list(itertools.islice({}, 1))", "list(itertools.repeat({}, 2))",
)  # fmt: skip
METHODS = (
    "append({})", "extend({})", "insert(0, {})", "pop()", "pop({})", "remove({})", "index({})", "count({})", "sort()", "reverse()", "copy()", "clear()", "appendleft({})", "popleft()", "rotate(1)", "keys()", "values()", "items()", "get({})", "get({}, {})", "setdefault({}, {})",
    "update({})", "popitem()", "move_to_end({})", "most_common()", "elements()", "subtract({})", "add({})", "discard({})", "union({})", "intersection({})", "difference({})", "issubset({})", "isdisjoint({})", "symmetric_difference({})", "__len__()", "__contains__({})", "__getitem__({})", "__eq__({})", "__add__({})", "__radd__({})",
    "__iter__()", "__reversed__()", "__mul__({})", "__hash__() is None", "__str__()", "__repr__()", "__format__('')", "__or__({})", "__bool__()", "__index__()", "__call__({})", "__next__()", "bit_length()", "is_integer()", "as_integer_ratio()", "conjugate()", "hex()", "upper()", "split({})", "join({})", "replace({}, {})", "startswith({})", "strip({})", "find({})",
    "encode()", "decode()", "format({})", "zfill(5)", "partition({})", "title()", "isdigit()", "_asdict()", "_replace(x=5)", "numel()", "indices({})", "total()", "value", "name", "real", "imag", "start", "stop", "maxlen", "default_factory", "x", "first", "args", "func", "items", "missing",
)  # fmt: skip
CHANGES = ("v[0] = {}", "v['a'] = {}", "del v[0]", "del v['a']", "v += {}", "v *= {}", "v |= {}", "v -= {}", "v &= {}", "v[:1] = {}", "v, w = {}", "v, *w = {}", "(v, w), u = {}", "v.new = {}", "v **= {}", "v //= {}", "v @= {}", "del v[{}]", "v[{}] = {}")  # fmt: skip

Point = collections.namedtuple("Point", ["x", "y"])
Kind = enum.Enum("Kind", "RED BLUE")


@dataclasses.dataclass(order=True)
class Pair:
    first: int
    second: int = 2


class Box(list):
    """A list of the program's own."""


class Named(dict):
    """A dict of the program's own."""


class Text(str):
    """A string of the program's own."""


class Whole(int):
    """A number of the program's own."""


def drawn(choose: random.Random, given: bool) -> str:
    """Twelve expressions or changes, each of whose results or errors is kept."""

    def one() -> str:
        return choose.choice(["a", "b", "c"] if given else OBJECTS)

    def filled(pattern: str) -> str:
        count = pattern.replace("{{", "").replace("}}", "").count("{")
        return pattern.format(*(f"({one()})" for _ in range(count)))

    lines = ["import itertools, operator", "out = []"]
    for _ in range(12):
        kind = choose.random()
        if kind < 0.25:
            what = f"({one()}) {choose.choice(BINARY)} ({one()})"
        elif kind < 0.3:
            what = choose.choice(UNARY).format(f"({one()})")
        elif kind < 0.6:
            what = filled(choose.choice(CALLS))
        elif kind < 0.85:
            what = f"({one()})." + filled(choose.choice(METHODS))
        else:
            lines += [f"v = {one()}", "w = u = None", "try:", f"    {filled(choose.choice(CHANGES))}"]
            lines += ["except Exception as e:", "    u = type(e), str(e)", "out.append([v, w, u])"]
            continue
        lines += ["try:", f"    out.append({what})", "except Exception as e:", "    out.append((type(e), str(e)))"]
    return "\n".join(["def f(x, a, b, c):", *(f"    {line}" for line in [*lines, "return x + 1, out, a, b, c"])])


def told(value, depth=0):
    """A value as text: its type, and what is in it."""
    if isinstance(value, (list, tuple, dict, collections.deque)) and depth == 6:
        return type(value).__name__  # one may hold itself
    if isinstance(value, (list, tuple, collections.deque)):
        return (type(value).__name__, getattr(value, "maxlen", None), [told(v, depth + 1) for v in value])
    if isinstance(value, dict):
        return (type(value).__name__, [(told(k), told(v, depth + 1)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(map(repr, value)))
    if callable(value) or type(value).__repr__ is object.__repr__ or hasattr(type(value), "__next__"):
        left = list(value) if hasattr(type(value), "__next__") else None
        return (type(value).__name__, getattr(value, "__name__", None), told(left) if left is not None else None)
    return (type(value).__name__, re.sub("0x[0-9a-f]+", "0x", repr(value)))


def outcome(function, objects):
    """What the call gives, leaves and prints: each object is made anew."""
    scope = {
        "collections": collections,
        "functools": functools,
        "torch": torch,
        "Point": Point,
        "Pair": Pair,
        "Kind": Kind,
        "Box": Box,
        "Named": Named,
        "Text": Text,
        "Whole": Whole,
    }
    arguments = [eval(text, scope) for text in objects]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # `1 is 2` and the like are drawn on purpose
        exec(function, scope)
    return scope["f"], (torch.ones(2), *arguments)


def differs(seed: int) -> str:
    """The program and both answers, where they differ."""
    choose = random.Random(seed)
    given = choose.random() < 0.5
    text, objects = drawn(choose, given), [choose.choice(OBJECTS) for _ in range(3)]
    plain, arguments = outcome(text, objects)
    wanted = [told(v) for v in plain(*arguments)[1:]]
    ours, arguments = outcome(text, objects)
    found = [told(v) for v in make_region(ours, eager)(*arguments)[1:]]
    if found == wanted:
        return ""
    steps = [(a, b) for a, b in zip(wanted[0][2], found[0][2]) if a != b] or [(wanted[1:], found[1:])]
    return f"seed {seed}\n{text}\n{objects}\nPython {steps[0][0]}\nours   {steps[0][1]}"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_some_programs(first):
    """A slice of them."""
    assert not [text for seed in range(first, first + 20) if (text := differs(seed))]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 5000, 100))
def test_many_programs(first):
    """More of them."""
    assert not [text for seed in range(first, first + 100) if (text := differs(seed))]


@pytest.mark.parametrize(
    "step",
    [
        "a += {3}",
        "a *= 2",
        "d |= {'b': 2}",
        "d = items.__or__({})",
        "a = size is other",
        "try:\n    sum((), Text('ab'))\nexcept TypeError as e:\n    d = str(e)",
        "try:\n    len(whole)\nexcept TypeError as e:\n    d = str(e)",
        "try:\n    {}.pop(b)\nexcept KeyError as e:\n    d = e.args[0] is b",
    ],
)
def test_steps_found(step):
    """Among them: an operator in place gives the object that it changed, of whatever class."""
    text = "def f(x, a, b, d, items, size, other, whole):\n    was, had = a, d\n    " + step.replace("\n", "\n    ")
    text += "\n    return x + 1, [a, d, a is was, d is had]"
    objects = ["Box([1, 2])", "[1]", "Named(a=1)", "{'a': 1}.items()", "torch.Size([2, 3])"]
    objects += ["torch.Size([2, 3])", "Whole(3)"]
    found, wanted = [], []
    for into, compiled in ((wanted, False), (found, True)):
        function, arguments = outcome(text, objects)
        into += map(told, (make_region(function, eager) if compiled else function)(*arguments)[1])
    assert found == wanted
