"""Calls drawn from the signatures of builtins and library functions, run plainly and captured.

In: a callable, a seed. Out: `cases(...)`, programs as text with their arguments; `compare(case)`, what differs between the two ways of
running it ("" for nothing) and whether it was one graph. Compared are type and value of the result (iterators drawn from), which
argument it is, type and text of an exception, and the arguments afterwards.
"""

from __future__ import annotations

import builtins
import collections
import copy
import functools
import inspect
import itertools
import math
import operator
import random
import re
import types

import attrs
import torch
from both_ways import eager

from flambeau_capture import make_region
from flambeau_capture.signatures import signature_of


class L(list):
    pass


class D(dict):
    pass


class Missing(dict):
    def __missing__(self, key):
        return key


class Int(int):
    pass


class S(str):
    pass


class Tu(tuple):
    pass


class Plain:
    def __init__(self):
        self.a = 1
        self.b = [2]


class Slots:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1
        self.b = [2]


class Sized:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return [5, 6][index]

    def __bool__(self):
        return False


class Ordered:
    def __init__(self, n):
        self.n = n

    def __lt__(self, other):
        return self.n < other.n

    def __eq__(self, other):
        return isinstance(other, Ordered) and self.n == other.n

    __hash__ = None


LIBRARY = (builtins, collections, copy, functools, itertools, math, operator, types)
"""What the texts of calls name."""

P = collections.namedtuple("P", "x y")


def negate(v):
    return -v


def add(a, b):
    return a + b


def positive(v):
    return v > 0


def fails(*args):
    raise LookupError("of the function", *args)


_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
"""Where an object lies: in the text of one without a `__repr__`."""

INTEGERS = ("0", "1", "2", "3", "-1", "-2", "True", "None", "7")
NUMBERS = (*INTEGERS, "2.5", "-0.0", "1e300", "10**20", "Int(3)", "1j")
TEXTS = ("''", "'abc'", "'b'", "'12'", "S('ab')", "b'ab'", "'a b'")
ITERABLES = (
    "[]", "[3, 1, 2]", "[1, 2.5, True]", "['b', 'a']", "[[1], [2]]", "[(1, 'a'), (2, 'b')]", "()", "(1, 2)", "((1, 2), (3, 4))", "{}",
    "{'a': 1, 'b': 2}", "{1: 'x'}", "{4}", "{9, 1, 17}", "frozenset((1,))", "range(4)", "'abc'", "b'ab'", "collections.deque([1, 2, 3])",
    "collections.deque([1, 2], 2)", "collections.OrderedDict(a=1, b=2)", "collections.defaultdict(int, a=1)", "P(1, 2)", "L([1, 2])",
    "D(a=1)", "Missing(a=1)", "Tu((1, 2))", "iter([1, 2, 3])", "[x, x + 1]", "{'a': 1}.items()", "{'a': 1}.keys()", "[Ordered(2), Ordered(1)]",
    "types.MappingProxyType({'a': 1})", "Sized()", "[0, None, '']", "[2, 'a']", "S('ab')",
)  # fmt: skip
FUNCTIONS = (
    "negate",
    "add",
    "positive",
    "fails",
    "len",
    "int",
    "str",
    "None",
    "(lambda v: v)",
    "list",
    "max",
    "functools.partial(add, 1)",
)
CLASSES = ("int", "list", "(int, str)", "ValueError", "L", "dict", "int | str", "object", "type", "Plain", "3")
OBJECTS = ("Plain()", "Slots()", "Sized()", "Ordered(1)", "object()", "ValueError('e', 3)", "x")
NAMES = ("'a'", "'b'", "'append'", "'__len__'", "'n'", "'zz'", "3", "S('a')")
EVERYTHING = (*NUMBERS, *TEXTS, *ITERABLES, *FUNCTIONS, *CLASSES, *OBJECTS)
_HINTS = {
    ITERABLES: "iterable iterables mapping sequence seq data selectors population integers coordinates p q mapping s self",
    FUNCTIONS: "key function predicate func default_factory",
    INTEGERS: "n r k times repeat maxlen start stop step ndigits i index base initial m mod exp size count indices",
    NUMBERS: "x y number rel_tol abs_tol other value",
    NAMES: "name names attribute attributes",
    CLASSES: "cls class_or_tuple",
    OBJECTS: "obj object class_or_instance",
    TEXTS: "string sub sep old new chars prefix suffix text format_spec message",
    ("True", "False", "0", "[1]"): "reverse strict",
}
HINTS = {name: pool for pool, names in _HINTS.items() for name in names.split()}


@attrs.frozen
class Case:
    """One call as text. With `outside`, arguments come from the caller; else the program makes them itself.

    A target that begins with a dot is a method of the first argument.
    """

    target: str
    arguments: tuple[tuple[str, str], ...]
    outside: bool
    draws: bool

    def source(self):
        parameters = [f"a{i}" for i in range(len(self.arguments))]
        given = parameters if self.outside else [text for _, text in self.arguments]
        pairs = zip(self.arguments, given, strict=True)
        texts = [f"{name}={text}" if name else text for (name, _), text in pairs]
        called = self.target
        if called.startswith("."):
            called = f"({texts.pop(0)}){called}"
        call = ", ".join(texts)
        after = (
            "\n    if hasattr(r, '__next__'):\n        r = [type(r).__name__, *itertools.islice(r, 8)]"
            if self.draws
            else ""
        )
        return (
            f"def program({', '.join(['x', *parameters] if self.outside else ['x'])}):\n"
            f"    try:\n        r = {called}({call})\n"
            "    except Exception as error:\n        return x + 1, 'raised', type(error), str(error)"
            f"{after}\n    return x + 1, 'returned', r\n"
        )

    def make(self):
        """The program and a function that makes fresh arguments."""
        space = {**globals()}
        exec(compile(self.source(), "<case>", "exec"), space)

        def arguments():
            x = torch.arange(2.0)
            mine = [eval(text, space, {"x": x}) for _, text in self.arguments] if self.outside else []
            return [x, *mine]

        return space["program"], arguments


def cases(target, count, seed, signature=None, owner=()):
    """`count` calls of what `target` names; `owner` are texts of the first argument (a method's)."""
    chosen = random.Random(f"{target}{seed}")
    signature = signature or signature_of(eval(target))
    for _ in range(count):
        yield Case(target, tuple(_arguments(chosen, signature, owner)), chosen.random() < 0.5, chosen.random() < 0.5)


OWNERS = {
    list: ("[]", "[3, 1, 2]", "['b', 'a', 'b']", "[1, 2.5, True]", "[[1], [2]]", "L([2, 1])", "[x, 1]"),
    tuple: ("()", "(1, 2, 1)", "('a',)", "P(1, 2)", "Tu((1, 2))", "(x, 1)"),
    dict: ("{}", "{'a': 1, 'b': 2}", "{1: 'x', 2: [3]}", "D(a=1)", "Missing(a=1)", "{'a': x}"),
    collections.OrderedDict: ("collections.OrderedDict()", "collections.OrderedDict(a=1, b=2)", "collections.OrderedDict([(1, x)])"),
    collections.defaultdict: ("collections.defaultdict(list)", "collections.defaultdict(None, a=1)", "collections.defaultdict(int, {1: 2})"),
    set: ("set()", "{4}", "{9, 1, 17}", "{'a', 1}"),
    frozenset: ("frozenset()", "frozenset((1, 2))", "frozenset('ab')"),
    collections.deque: ("collections.deque()", "collections.deque([1, 2, 1])", "collections.deque([1, 2], 2)", "collections.deque([x])"),
    str: ("''", "'abc abc'", "'12'", "'A b'", "S('ab')", "'a,b'"),
    bytes: ("b''", "b'ab'", "b'12'"),
    int: ("0", "5", "-7", "True", "Int(3)", "10**20"),
    float: ("0.5", "-0.0", "2.0", "1e300"),
    range: ("range(0)", "range(4)", "range(5, 0, -2)"),
    slice: ("slice(1, 3)", "slice(None, None, -1)"),
}  # fmt: skip
"""Objects of each class whose methods are modelled, and of its subclasses."""


def methods_of(cls):
    """The public methods of a class, and the special ones that programs call by name."""
    special = (
        "__len__",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__contains__",
        "__iter__",
        "__eq__",
        "__add__",
        "__reversed__",
    )
    names = [name for name in dir(cls) if not name.startswith("_") or (name in special and name in vars(cls))]
    return [name for name in names if callable(getattr(cls, name))]


def method_cases(cls, name, count, seed):
    """Calls of a method of objects of `cls`."""
    try:
        signature = inspect.signature(getattr(cls, name))
    except ValueError:
        signature = inspect.signature(lambda self, x=0, key=0, /: 0)
    if isinstance(vars(cls).get(name), staticmethod) or getattr(getattr(cls, name), "__self__", None) is cls:
        parameters = [inspect.Parameter("owner_", inspect.Parameter.POSITIONAL_ONLY), *signature.parameters.values()]
        signature = signature.replace(parameters=parameters)
    return cases(f".{name}", count, f"{cls.__name__}{seed}", signature, OWNERS[cls])


def _arguments(chosen, signature, owner):
    named = False
    for index, (name, parameter) in enumerate(signature.parameters.items()):
        if index == 0 and owner:
            yield "", chosen.choice(owner)
            continue
        pool = HINTS.get(name, EVERYTHING) if chosen.random() < 0.85 else EVERYTHING
        if parameter.kind is parameter.VAR_POSITIONAL:
            for _ in range(0 if named else chosen.choice((0, 1, 1, 2, 3))):
                yield "", chosen.choice(pool)
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            for extra in chosen.sample(("a", "k", "key"), chosen.choice((0, 0, 1, 2))):
                yield extra, chosen.choice(EVERYTHING)
            continue
        optional = parameter.default is not parameter.empty
        if chosen.random() < (0.5 if optional else 0.04):
            named = named or parameter.kind is not parameter.POSITIONAL_ONLY
            continue
        wrong_way = chosen.random() < 0.04
        keyword = parameter.kind is parameter.KEYWORD_ONLY or (
            parameter.kind is parameter.POSITIONAL_OR_KEYWORD and (named or chosen.random() < 0.4)
        )
        if keyword != wrong_way or named:
            named = True
            yield name, chosen.choice(pool)
        else:
            yield "", chosen.choice(pool)
    if chosen.random() < 0.04:
        yield "surplus", chosen.choice(EVERYTHING)


def compare(case):
    """What differs ("" for nothing), and whether the program was captured as one graph."""
    program, arguments = case.make()
    records = []
    region = make_region(program, eager, observer=records.append, suppress_errors=False)
    for call in ("the first call", "a hit"):
        mine, plain = arguments(), arguments()
        expected = _outcome(program, plain)
        found = _outcome(region, mine)
        if expected != found:
            return f"{case.source()}{case.arguments}\n{call}: plainly\n  {expected}\ncaptured\n  {found}", False
    return "", bool(records) and records[0].graph is not None and not any(r.breaks or r.skipped for r in records)


_OWNER = re.compile(r"\b\w+\.(\w+\(\) takes)")
"""Who a method belongs to, which messages tell or not by the way it was called."""


def _told(outcome):
    return _OWNER.sub(r"\1", _ADDRESS.sub("0x", repr(outcome)))


def _outcome(function, arguments):
    try:
        result = function(*arguments)
    except Exception as error:
        return _told(("escaped", type(error), str(error)))
    places = [i for i, argument in enumerate(arguments) if argument is result[-1] and not _is_value(argument)]
    return _told((show(result), places, show(arguments)))


def _is_value(argument):
    return isinstance(argument, int | float | complex | str | bytes | tuple | frozenset | type(None))


_MADE_ANEW = (torch.Tensor, types.FunctionType, functools.partial, Plain, Slots, Sized)
"""What the arguments hold is another object for each call, at another address."""


def show(value, depth=0):
    """Type and contents of a value, as something that compares and prints; an iterator is drawn from."""
    kind = type(value).__qualname__
    if depth > 6:
        return kind
    if isinstance(value, torch.Tensor):
        return kind, value.tolist()
    if isinstance(value, dict | types.MappingProxyType):
        return (
            kind,
            [(show(k, depth + 1), show(v, depth + 1)) for k, v in value.items()],
            getattr(value, "default_factory", None),
        )
    if isinstance(value, list | tuple | set | frozenset | collections.deque):
        items = [show(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset) and any(isinstance(item, _MADE_ANEW) for item in value):
            items.sort(key=repr)  # their order is that of their addresses
        return kind, items, getattr(value, "maxlen", None)
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type | types.MethodType):
        return kind, value.__qualname__
    if isinstance(value, functools.partial):
        return kind, show(value.func), show(value.args), show(value.keywords)
    if hasattr(value, "__next__"):
        drawn = []
        try:
            drawn.extend(show(item, depth + 1) for item in itertools.islice(value, 8))
        except Exception as error:
            drawn.append((type(error), str(error)))
        return kind, drawn
    if isinstance(value, Plain | Ordered | types.SimpleNamespace):
        return kind, show(vars(value), depth + 1)
    if isinstance(value, Slots):
        return kind, [show(getattr(value, name, None), depth + 1) for name in ("a", "b")]
    if isinstance(value, BaseException):
        return kind, show(value.args, depth + 1)
    if isinstance(value, int | float | complex | str | bytes | range | slice | type(None)):
        return kind, repr(value)
    return kind
