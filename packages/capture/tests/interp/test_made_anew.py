"""Functions that a call makes anew: one compile serves all that are alike, and none is taken for another one."""

from __future__ import annotations

import functools
import inspect
import json
import re

import pytest
import torch
from both_ways import recorded
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

#: How a program uses a function that it is given.
USES = {
    "call": lambda t, f: f(t),
    "partial": lambda t, f: functools.partial(f, t)(),
    "map": lambda t, f: list(map(f, [t, t])),
    "reduce": lambda t, f: functools.reduce(lambda a, b: f(a) + b, [t, t]),
    "checkpoint": lambda t, f: checkpoint(f, t, use_reentrant=False),
    "tree_map": lambda t, f: pytree.tree_map(f, {"a": t}),
    "sorted": lambda t, f: (t + 1, sorted([1, 2], key=f)),
    "cmp_to_key": lambda t, f: (t + 1, sorted([1, 2], key=functools.cmp_to_key(lambda a, b: f(a) - f(b)))),
    "wraps": lambda t, f: functools.wraps(f)(lambda x: f(x))(t),
    "regular expression": lambda t, f: (t + 1, re.sub("a", f, "aa")),
    "json": lambda t, f: (t + 1, json.dumps({"a": {1}}, default=f)),
    "signature": lambda t, f: (t + 1, str(inspect.signature(f))),
    "defaults": lambda t, f: (t + 1, f.__defaults__, f.__name__),
    "key": lambda t, f: (t + 1, {f: 1}[f]),
}
ASK_FOR_THE_VERY_FUNCTION = ("regular expression",)


def _over(number):
    return lambda x: str(number) if isinstance(x, re.Match) else x * number


def _alike():
    return lambda x, k=2: "z" if isinstance(x, re.Match) else x * k


def _told(function, *args):
    try:
        return str(function(torch.ones(1), *args))
    except TypeError as error:
        return type(error).__name__


@pytest.mark.parametrize("use", USES)
def test_functions_that_are_alike_share_a_graph(use):
    graphs = []
    region = recorded(USES[use], graphs)
    for make in (_alike, lambda: _over(3)):
        for _ in range(4):
            function = make()
            assert _told(region, function) == _told(USES[use], function)
    assert len(graphs) <= 2 or use in ASK_FOR_THE_VERY_FUNCTION


@pytest.mark.parametrize("use", USES)
def test_functions_that_differ_in_what_they_close_over(use):
    region = recorded(USES[use], [])
    for number in (1, 2, 3, 1):
        function = _over(number)
        assert _told(region, function) == _told(USES[use], function)


@pytest.mark.parametrize("closes_over", ["nothing", "a number"])
def test_functions_of_one_code_in_two_namespaces(closes_over):
    body = (
        "def inner(t, k=1):\n        return t * k + added"
        if closes_over == "nothing"
        else "return lambda t: t * one + added"
    )
    code = compile(
        f"def make(one):\n    {body}\n    return inner\n" if "def" in body else f"def make(one):\n    {body}\n",
        "made",
        "exec",
    )
    made = []
    for added in (1, 100):
        space = {"added": added}
        exec(code, space)
        made.append(space["make"](2))
    region = recorded(lambda t, f: f(t), [])
    for function in (*made, *made):
        assert torch.equal(region(torch.ones(1), function), function(torch.ones(1)))


def test_what_is_given_to_one_of_them():
    def program(t, f):
        return t + 1, f(1), getattr(f, "extra", 0)

    region = recorded(program, [])
    for change in ("nothing", "defaults", "attribute", "code", "nothing"):
        function = _alike()
        if change == "defaults":
            function.__defaults__ = (50,)
        elif change == "attribute":
            function.extra = 4
        elif change == "code":
            function.__code__ = (lambda x: x * 7).__code__
        assert region(torch.ones(1), function)[1:] == program(torch.ones(1), function)[1:], change
