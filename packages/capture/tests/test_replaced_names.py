"""Functions that a program puts in the place of Python's own: nothing is compiled meanwhile, and none of ours calls them."""

from __future__ import annotations

import builtins
import collections
import functools
import itertools
import types

import pytest
import torch

import flambeau_capture
from flambeau_capture.errors import GraphBreakError
from flambeau_capture.replaced_names import PutBack, are_as_imported

REPLACED = ("len", "isinstance", "getattr", "sorted", "type", "next", "__import__", "ValueError", "__build_class__")
OWN = dict(vars(builtins))


class Counting:
    """A stand-in for a builtin that counts its calls."""

    def __init__(self, name):
        self.name, self.calls = name, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return OWN[self.name](*args, **kwargs)


def _compiled(function, **options):
    records = []
    region = flambeau_capture.make_region(function, lambda gm, inputs: gm.forward, observer=records.append, **options)
    return region, records


def _call(function, name, there, *args):
    """What the function returns while something else has a builtin's name."""
    namespace = vars(builtins)
    namespace[name] = there
    try:
        return function(*args)
    finally:
        namespace[name] = OWN[name]


@pytest.mark.parametrize("name", REPLACED)
def test_a_builtin_that_stages_call_is_not_called_by_them(name):
    region, records = _compiled(lambda x: (x * 2).sum())
    counting = Counting(name)
    x = torch.ones(2)
    assert _call(region, name, counting, x) == 4
    assert counting.calls == 0
    (record,) = records
    assert f"builtins.{name} is not Python's own" in record.breaks[0].reason
    assert region(x) == 4
    assert records[1].operations == 2
    assert _call(region, name, counting, x) == 4, "an entry that does not read the name is used"
    assert counting.calls == 0
    assert len(records) == 2


def test_one_graph_cannot_be_had_meanwhile():
    region, _ = _compiled(lambda x: x * 2, fullgraph=True)
    with pytest.raises(GraphBreakError, match="builtins.len is not Python's own"):
        _call(region, "len", Counting("len"), torch.ones(2))
    assert region(torch.ones(2)).tolist() == [2, 2]


def test_what_no_stage_calls_may_be_replaced():
    region, records = _compiled(lambda x: x * 2)
    counting = Counting("print")
    _call(region, "print", counting, torch.ones(2))
    assert (counting.calls, records[0].operations, records[0].breaks) == (0, 1, ())


def test_the_programs_own_calls_reach_what_it_put_there():
    region, records = _compiled(lambda x: x * len([1, 2]))
    x = torch.ones(1)
    seen = []
    for there in (OWN["len"], lambda of: 5, OWN["len"], lambda of: 7):
        seen.append(_call(region, "len", there, x).item())
    assert seen == [2, 5, 2, 7]
    assert sum(record.operations for record in records) == 1


def test_an_import_statement_runs_what_the_program_put_there():
    def f(x):
        import math

        return x * math.pi

    region, _ = _compiled(f)
    counting = Counting("__import__")
    region(torch.ones(1))
    _call(region, "__import__", counting, torch.ones(1))
    assert counting.calls == 1


def test_the_context_gives_back_what_was_there_and_what_was_not():
    counting = Counting("len")
    namespace = vars(builtins)
    namespace["len"] = counting
    del namespace["reversed"]
    try:
        assert not are_as_imported()
        with PutBack() as replaced:
            assert sorted(replaced) == ["builtins.len", "builtins.reversed"]
            assert are_as_imported()
        assert namespace["len"] is counting
        assert "reversed" not in namespace
    finally:
        namespace.update(len=OWN["len"], reversed=OWN["reversed"])
    assert are_as_imported()


@pytest.mark.parametrize(
    ("module", "name"), [(functools, "partial"), (itertools, "chain"), (collections, "Counter"), (types, "MethodType")]
)
def test_a_class_of_the_library(module, name, monkeypatch):
    own, calls = getattr(module, name), []

    def stand_in(*args, **kwargs):
        calls.append(args)
        return own(*args, **kwargs)

    region, records = _compiled(lambda x: (x * 2).sum())
    with monkeypatch.context() as patched:
        patched.setattr(module, name, stand_in)
        assert region(torch.ones(2)) == 4
        assert not calls
    assert f"{module.__name__}.{name} is not Python's own" in records[0].breaks[0].reason
    assert region(torch.ones(2)) == 4
    assert records[1].operations == 2
