"""Replacements of builtins: each expression gives what Python's own gives, in one graph; exceptions included."""

from __future__ import annotations

import collections
import enum
import types

import pytest
import torch
from both_ways import eager, outcome, recorded

from flambeau_capture import make_region


class Sized:
    """Answers for itself."""

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([1, 2])

    def __contains__(self, item):
        return item == 7

    def __bool__(self):
        return False

    def __index__(self):
        return 2

    def __reversed__(self):
        return iter("ba")


EXPRESSIONS = {
    "len": lambda x: (len(x), len([x]), len({}), len("abc"), len(Sized())),
    "isinstance": lambda x: (
        isinstance(x, torch.Tensor),
        isinstance(1, (int, str)),
        isinstance(True, int),
        isinstance(x.shape, tuple),
    ),
    "issubclass": lambda x: (issubclass(bool, int), issubclass(Sized, (list, dict)), x),
    "type": lambda x: (type(x) is torch.Tensor, float.__name__, type(Sized()) is Sized, type(x.shape).__name__),
    "callable": lambda x: (callable(len), callable(x.add), callable(1), callable(lambda: 1), callable(Sized())),
    "getattr": lambda x: (getattr(x, "ndim"), getattr(x, "nope", 3), hasattr(x, "nope"), hasattr(x, "add")),  # noqa: B009
    "iter_next": lambda x: (i := iter([x, 1]), next(i), next(i), next(i, "end"))[1:],
    "iter_sentinel": lambda x: (n := iter([1, 2, 3]), list(iter(lambda: next(n), 3)), x)[1:],
    "range": lambda x: [list(range(3)), list(range(5, 0, -2)), len(range(x.shape[0])), 3 in range(4), x],
    "enumerate": lambda x: [(i, v) for i, v in enumerate([x, 1], start=3)],
    "zip": lambda x: (list(zip([1, 2], "ab", strict=True)), list(zip()), x),
    "zip_strict": lambda x: list(zip([x], [1, 2], strict=True)),
    "map": lambda x: list(map(lambda a, b: a * b, [x, x], (2, 3))),
    "filter": lambda x: [*filter(None, [0, 1, ""]), *filter(lambda n: n > 1, [1, 2]), x],
    "reversed": lambda x: (list(reversed([x, 1])), list(reversed(range(3))), list(reversed(Sized()))),
    "sorted": lambda x: (
        sorted([3, 1, 2], reverse=True),
        sorted("bca"),
        sorted([(2, "a"), (1, "b")], key=lambda p: p[1]),
        x,
    ),
    "any_all": lambda x: (any([]), any(n > 1 for n in x.shape), all([]), all(n > 3 for n in x.shape)),
    "sum": lambda x: (sum([1, 2], 3), sum([x, x]), sum([[1], [2]], [])),  # noqa: RUF017
    "max_min": lambda x: (max(1, 2), min([3, 1]), max("ab", key=ord), min([], default=7), max(x.shape), x),
    "max_of_nothing": lambda x: max([]),
    "abs_pow_divmod": lambda x: (abs(x), abs(-2), pow(x, 2), pow(2, 3, 5), divmod(7, 2), divmod(-7, 2)),
    "numbers": lambda x: (int("12"), int(2.7), float("1e3"), bool([]), complex(1, 2), round(2.5), round(1.234, 2), x),
    "bad_number": lambda x: int("x"),
    "text": lambda x: (str(12), repr("a"), ascii("é"), format(3.14159, ".2f"), chr(97), ord("a"), hex(255), bin(2), x),
    "containers": lambda x: (list("ab"), tuple([x]), set([1, 1]), frozenset("a"), dict(a=1, b=x), dict([("k", x)])),  # noqa: C405
    "fromkeys": lambda x: (dict.fromkeys("ab"), dict.fromkeys([1], x)),
    "slice": lambda x: (slice(1, 2).stop, x[slice(None, 2)], [1, 2, 3][slice(-1, None)]),
    "hash": lambda x: (hash("a") == hash("a"), hash((1, 2)) == hash((1, 2)), x),
    "vars": lambda x: (vars(Sized()), x),
    "contains": lambda x: (7 in Sized(), 1 in Sized(), 2 not in [1, x.dim()]),
    "truth": lambda x: (not Sized(), bool(x.shape), 1 if Sized() else 2),
    "super_without_class": lambda x: super(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_same_as_python(name, check):
    """Table of expressions."""
    check(
        EXPRESSIONS[name], fullgraph=name not in ("zip_strict", "max_of_nothing", "bad_number", "super_without_class")
    )


@pytest.mark.parametrize(
    "lists", [([1], [1, 2]), ([1, 2], [1]), ([1], [1], [1, 2]), ([1, 2], [1, 2], [1]), ([], [1]), ([1], [2])], ids=str
)
def test_a_strict_zip_tells_which_one_is_too_short(lists, check):
    """Its error is caught, so that the graph goes on."""

    def function(x):
        try:
            told = list(zip(*lists, strict=True))
        except ValueError as error:
            told = str(error)
        return x + 1, told

    check(function)


def test_what_cannot_be_traced_breaks(broken):
    """Each for its reason."""
    assert broken(lambda x: print(end="") or x + 1) == {"input-output"}
    assert broken(lambda x: (sorted(globals())[:0], x + 1)) == {"unsupported-call"}
    assert broken(lambda x: round(float(x.sum()))) == {"data-dependent-value"}
    assert broken(lambda x: 1 if bool(x.sum() > 0) else 2) == {"data-dependent-branch"}


@pytest.mark.parametrize(
    "classes", [int, (int, (str, float)), int | str, types.UnionType, (types.UnionType, int | None)], ids=str
)
def test_any_form_of_classes(classes, check):
    """One, tuples of tuples, a union, and the class of unions itself."""
    check(lambda x: (isinstance(3, classes), isinstance(int | str, classes), isinstance(x, classes), x + 1))


class _Level(enum.IntEnum):
    LOW = 1


class _Halves:
    """Adding one makes a float of what was there."""

    def __radd__(self, other):
        return other * 0.5

    def __repr__(self):
        return "halves"  # test names have to be the same in every process


TENTHS = [0.1] * 10


@pytest.mark.parametrize("start", [0, 0.1, True, _Level.LOW, 1j], ids=repr)
@pytest.mark.parametrize(
    "items",
    [
        TENTHS,
        [1, 0.1, 2, 0.2, 0.3, 5],
        [0.1, _Level.LOW, *TENTHS],
        [_Level.LOW, *TENTHS],
        [True, *TENTHS],
        [_Halves(), *TENTHS],
        [0.1, 0.2, _Halves(), *TENTHS],
        [1j, *TENTHS],
        [*TENTHS, 1j, *TENTHS],
        [*TENTHS, torch.tensor(2.0), *TENTHS],
        [1e308, 1e308, -1e308],
        [2**70, *TENTHS],
    ],
    ids=str,
)
def test_a_sum_of_floats_rounds_as_python_does(items, start, check):
    """It carries what its additions round off, as long as there are but floats and integers."""
    check(lambda x: (x + 1, sum(items, start), sum(iter(items), start)))


def test_a_sum_of_numbers_that_change():
    """A float that is an argument, several times."""

    def function(x, n, s):
        return x + 1, sum([n * 0.1, s, s * 0.3, 0.7]), sum([s, s * 3]), sum([n, n, s])

    region = make_region(function, eager)
    for n, s in ((1, 0.1), (3, 0.3), (7, 0.7), (9, 0.9)):
        assert region(torch.ones(2), n, s)[1:] == function(torch.ones(2), n, s)[1:]


class OwnTuple(tuple):
    """A subclass whose instances can be made by tuple's maker."""


class OwnDict(dict):
    """The same for dict's."""


MAKERS = (
    object, tuple, list, dict, set, frozenset, int, float, str, torch.Size, ValueError, collections.deque, collections.OrderedDict, slice,
)  # fmt: skip


@pytest.mark.parametrize("arguments", [(), ((1, 2),)], ids=["", "items"])
@pytest.mark.parametrize("maker", MAKERS, ids=lambda cls: cls.__name__)
def test_a_maker_takes_its_own_classes_only(maker, arguments):
    """`__new__` of a class, called with any other: what Python makes of it, or its error."""

    def function(x, cls):
        y = x + 1
        try:
            made = maker.__new__(cls, *arguments)
        except TypeError as error:
            made = str(error)
        return y, made

    for cls in (maker, *MAKERS[:6], bool, torch.Size, OwnTuple, OwnDict, KeyError, OwnTuple(), None):
        graphs = []
        found, expected = recorded(function, graphs)(torch.ones(2), cls)[1], function(torch.ones(2), cls)[1]
        assert graphs
        assert type(found) is type(expected)
        if type(expected) is not object:
            assert repr(found) == repr(expected)


def test_code_in_a_text_runs_at_each_call():
    """It reads the caller's names, and what it does is done for real."""
    told = []

    def of(t):
        told.append(eval("len(told)"))
        exec("told.append(7)")
        return t + 1, list(told)

    compiled, expected = make_region(of, eager), []
    for call in range(1, 3):
        assert compiled(torch.ones(2))[1] == told
        assert len(told) == 2 * call
        expected += [2 * call - 2, 7]
    assert told == expected


@pytest.mark.parametrize("sizes", [(), (3,)])
def test_batch_norm_of_what_has_no_channels(sizes):
    """Refused as by eager: a run on fakes may end the process."""

    def of(t):
        return torch.nn.functional.batch_norm(t, torch.zeros(3), torch.ones(3))

    breaks = recorded(of, [])
    plain = outcome(of, torch.ones(sizes))
    assert plain[0] == "raised"
    assert outcome(breaks, torch.ones(sizes)) == plain


class Hashed:
    """An object with a hash of its own."""

    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number


@pytest.mark.parametrize("number", [5, -1, 2**61 + 5, 2**63 - 1, True])
def test_a_hash_is_what_the_method_gives(check, number):
    """But for -1, which says that there is an error."""
    check(lambda x: (x + 1, hash(Hashed(number))))
