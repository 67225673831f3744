"""What is trusted not to change, or is nowhere, gets no guard."""

from __future__ import annotations

import copy
import weakref
from types import SimpleNamespace

import pytest
import torch
from both_ways import recorded

from flambeau_capture.guards.check import check
from flambeau_capture.guards.collect import GuardCollector
from flambeau_capture.guards.spec import ClassMember
from flambeau_capture.sources.source import Attribute, Local, Pinned

TRUST = SimpleNamespace(
    is_trusted_namespace=lambda obj: obj is torch, holds_still=lambda obj: True, is_setting=lambda *args: False
)


@pytest.mark.parametrize(
    ("require", "what"),
    [(GuardCollector.type_is, type(torch.add)), (GuardCollector.identity, torch.add), (GuardCollector.constant, 3)],
)
def test_only_what_may_change_is_guarded(require, what):
    """A local, but neither a function of a trusted module nor a value without a source."""
    collector = GuardCollector(lambda: None, TRUST)
    require(collector, None, what)
    require(collector, Attribute(Pinned(torch), "add"), what)
    assert not collector.specs
    require(collector, Local("x"), what)
    require(collector, Attribute(Pinned(SimpleNamespace(add=what)), "add"), what)
    assert len(collector.specs) == 2


@pytest.mark.parametrize("given", [(), (2,)], ids=["asked for nothing", "asked for something"])
@pytest.mark.parametrize(
    ("answer", "other"),
    [(None, 0), ("a", "b"), (3, 4), ([1, 2], [1]), ((1, "a"), (1, "b")), (torch.float32, torch.float64)],
)
def test_an_answer_is_asked_for_again(answer, other, given):
    """An equal one, new at each look, holds; another does not."""
    told = [answer]
    collector = GuardCollector(lambda: None, TRUST)
    collector.answer(lambda *args: copy.copy(told[0]), given, {}, answer)
    assert check(collector.all(), {}, {}) == -1
    told[0] = other
    assert check(collector.all(), {}, {}) == 0


def test_a_function_of_a_class_is_held_weakly():
    class Owner:
        def method(self): ...

    function = Owner.method
    member = ClassMember("method", None, Owner, function)
    assert member.allows(function)
    watched = weakref.ref(function)
    del function, Owner.method
    assert watched() is None
    assert not member.allows(print)


def test_history_is_guarded_where_it_is_written_alone():
    """A tensor that is only read may be a leaf or not: one entry serves both. One that is written is looked at."""
    given = torch.ones(2, requires_grad=True)
    graphs = []
    region = recorded(lambda x: x * 2, graphs)
    region(given)
    region(given * 1)
    assert len(graphs) == 1

    region = recorded(lambda x: x.mul_(2).sum(), graphs)
    region(given * 1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        region(given)
