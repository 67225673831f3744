"""Replacements of the standard library: each expression gives what Python's own gives, in one graph."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import math
import types
import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

NAMED = collections.namedtuple("NAMED", "a b", defaults=[3])
EXPRESSIONS = {
    "chain": lambda x: list(itertools.chain([x], (x + 1,))),
    "chain_from_iterable": lambda x: list(itertools.chain.from_iterable([i, x] for i in range(2))),
    "islice": lambda x: [list(itertools.islice([x, 1, 2, 3, 4], 1, 4, 2)), list(itertools.islice(iter("abc"), 2))],
    "repeat": lambda x: list(itertools.repeat(x, 2)) + list(itertools.repeat(1, times=2)),
    "count": lambda x: [x * i for i, _ in zip(itertools.count(2, 3), range(3), strict=False)],
    "cycle": lambda x: [i for i, _ in zip(itertools.cycle("ab"), range(5), strict=False)] + [x],
    "product": lambda x: [(a, b, x) for a, b in itertools.product("ab", (1, 2))],
    "permutations": lambda x: [list(itertools.permutations(range(3), 2)), x],
    "combinations": lambda x: [list(itertools.combinations(range(3), 2)), x],
    "pairwise": lambda x: [b - a for a, b in itertools.pairwise([x, x * 2, x * 4])],
    "zip_longest": lambda x: list(itertools.zip_longest([x, 1], "a", fillvalue="-")),
    "accumulate": lambda x: (
        list(itertools.accumulate([x, x, x])) + list(itertools.accumulate([1, 2], lambda a, b: a * b))
    ),
    "starmap": lambda x: list(itertools.starmap(lambda a, b: a + b, [(x, 1), (x, 2)])),
    "takewhile": lambda x: [*itertools.takewhile(lambda n: n < 3, [1, 2, 3, 1]), x],
    "dropwhile": lambda x: [*itertools.dropwhile(lambda n: n < 3, [1, 2, 3, 1]), x],
    "compress": lambda x: list(itertools.compress([x, 1, 2], (1, 0, True))),
    "filterfalse": lambda x: [
        *itertools.filterfalse(lambda n: n % 2, range(4)),
        *itertools.filterfalse(None, [0, 1]),
        x,
    ],
    "groupby": lambda x: [(k, len(list(g))) for k, g in itertools.groupby("aabca")] + [x],
    "groupby_key": lambda x: [(k, list(g)) for k, g in itertools.groupby([1, 3, 2], key=lambda n: n % 2)] + [x],
    "tee": lambda x: [list(part) for part in itertools.tee(iter([x, 1]), 3)],
    "reduce": lambda x: functools.reduce(lambda a, b: a + b, [x, x, 1], 2),
    "partial": lambda x: functools.partial(functools.partial(pow, 2), 3)() * x,
    "partial_parts": lambda x: [(p := functools.partial(max, x.dim(), key=abs)).args, p.func is max, list(p.keywords)],
    "defaultdict": lambda x: (d := collections.defaultdict(list), d["a"].append(x), dict(d))[2],
    "ordered_dict": lambda x: (d := collections.OrderedDict(a=1, b=x), d.move_to_end("a"), list(d.items()))[2],
    "deque": lambda x: list(collections.deque([1, 2, x], maxlen=2)),
    "named_tuple": lambda x: NAMED(x)._asdict(),
    "math": lambda x: (
        math.sqrt(x.shape[1]),
        math.prod(x.shape),
        math.gcd(12, 8),
        math.floor(2.5),
        math.isnan(math.nan),
        x,
    ),
    "copy": lambda x: (a := [x, [1]], b := copy.copy(a), b.append(2), a, b[1] is a[1])[3:],
    "deepcopy": lambda x: (a := {"k": [x.shape[0]]}, b := copy.deepcopy(a), b["k"].append(x), a, b)[3:],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_same_as_the_library(name, check):
    """Table of expressions."""
    check(EXPRESSIONS[name])


def test_a_warning_that_the_program_counts_is_given_in_its_place():
    """Where it goes to a list that the program holds, it breaks the graph; elsewhere it is given after the graph."""

    def function(x, record):
        warnings.warn("counted")
        return x + len(record)

    for held in (True, False):
        with warnings.catch_warnings(record=True) as record:
            warnings.resetwarnings()  # none of them raises
            warnings.simplefilter("always")
            region = make_region(function, eager, suppress_errors=False)
            assert region(torch.zeros(2), record if held else [1, 2]).tolist() == [float(held) or 2.0] * 2
        assert [str(warning.message) for warning in record] == ["counted"]


def _warns_above(text):
    warnings.warn(text, stacklevel=2)


def _warns(x):
    y = x + 1
    warnings.warn("twice")
    warnings.warn("twice")
    warnings.warn(
        "on several lines",
        RuntimeWarning,
    )
    _warns_above("above")
    _warns_above("above")
    warnings.warn("of the caller", DeprecationWarning, 2)
    warnings.warn(FutureWarning("an object"))
    return y * 2


@pytest.mark.parametrize("action", ["default", "always", "module", "once"])
def test_a_warning_tells_where_it_was_given(action):
    """The line, and with it which of several equal ones are shown; a compile makes Python forget none that was shown."""
    shown = []
    for function in (_warns, make_region(_warns, eager, suppress_errors=False)):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as record:
            warnings.resetwarnings()
            warnings.simplefilter(action)
            for size in (2, 3):
                function(torch.zeros(size))
        shown.append([(str(w.message), w.category, w.filename, w.lineno) for w in record])
    assert shown[1] == shown[0]


def test_a_compile_shows_no_warning_again():
    with warnings.catch_warnings(record=True) as record:
        warnings.resetwarnings()
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("known", stacklevel=1)
            make_region(lambda x: x.sin(), eager, suppress_errors=False)(torch.zeros(2))
    assert [str(w.message) for w in record] == ["known"]


def test_a_counter_counts(check):
    """Made, updated, added to and asked, in one graph; one from outside keeps what was counted."""
    kept = collections.Counter("xy")

    def program(x):
        counts = collections.Counter("abca")
        counts.update({"a": 3})
        counts.subtract("b")
        counts["q"] += 1
        more = collections.Counter(a=1) + collections.Counter("ab")
        return dict(counts), counts.most_common(1), more, counts["none"], counts.total(), x * counts["a"]

    def counted(x):
        kept.update([x.shape[0], "x"])
        return x * kept["x"]

    check(program)
    region = make_region(counted, eager, fullgraph=True)
    assert [region(torch.ones(1)).item() for _ in range(3)] == [2, 3, 4]
    assert kept == {"x": 4, "y": 1, 1: 3}


def test_a_method_is_made_by_hand(check):
    """`types.MethodType` of functions, bound to anything but None."""
    check(lambda x: types.MethodType(torch.add, x)(1))
    check(lambda x: types.MethodType(lambda self, y: self * y, 3)(x))
