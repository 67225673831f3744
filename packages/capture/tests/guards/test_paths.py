"""Guards about what lies at other paths: every path of a spec is moved, nothing else is, and what has no path there stays."""

from __future__ import annotations

import pytest

from flambeau_capture.guards import spec as gs
from flambeau_capture.guards.check import Resolved, all_hold
from flambeau_capture.guards.paths import Inside, Moved, leads_from, sources_of
from flambeau_capture.sources.source import Attribute, Global, InstanceDict, Item, Local, roots_of

LAYERS = Local("layers")
FIRST, SECOND = Item(LAYERS, 0), Item(LAYERS, 1)
ELSEWHERE = Global("other")


class Thing:
    def __init__(self, number):
        self.number, self.parts = number, [number]


def inside(layer):
    return Item(InstanceDict(layer), "number")


SPECS = {
    "one source": lambda layer: gs.ConstantIs(inside(layer), 3),
    "a weak reference": lambda layer: gs.IdentityIs(inside(layer), Thing),
    "two sources": lambda layer: gs.AliasOf(inside(layer), ELSEWHERE),
    "the other source": lambda layer: gs.AliasOf(ELSEWHERE, inside(layer)),
    "several sources": lambda layer: gs.NoAlias((inside(layer), ELSEWHERE, Attribute(layer, "parts"))),
    "two groups": lambda layer: gs.DistinctStorage((inside(layer),), (ELSEWHERE, Attribute(layer, "parts"))),
    "the start itself": lambda layer: gs.TypeIs(layer, Thing),
}


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_is_moved_whole(name):
    moved = Moved(FIRST, SECOND)
    assert moved.spec(SPECS[name](FIRST)) == SPECS[name](SECOND)
    assert any(leads_from(path, SECOND) for path in sources_of(moved.spec(SPECS[name](FIRST))))


def test_what_does_not_come_by_the_start_stays():
    spec = gs.AliasOf(ELSEWHERE, Attribute(LAYERS, "parts"))
    assert Moved(FIRST, SECOND).spec(spec) == spec
    assert Moved(FIRST, SECOND).path(LAYERS) is LAYERS
    assert not leads_from(LAYERS, FIRST) and leads_from(FIRST, LAYERS) and leads_from(FIRST, FIRST)
    is_inside = Inside(FIRST)
    for path in (inside(FIRST), FIRST, LAYERS, inside(SECOND), ELSEWHERE, LAYERS, FIRST):
        assert is_inside(path) == leads_from(path, FIRST)
    assert roots_of([inside(FIRST), ELSEWHERE, SECOND, FIRST]) == {LAYERS, ELSEWHERE}


def test_moved_specs_are_checked_on_what_is_there():
    """A frame that walks each path once answers as one that walks them anew."""
    frame = Resolved({"layers": [Thing(3), Thing(3), Thing(4)]}, {})
    moved = Moved(FIRST, SECOND), Moved(FIRST, Item(LAYERS, 2)), Moved(FIRST, Item(LAYERS, 9))
    spec = gs.ConstantIs(inside(FIRST), 3)
    assert [all_hold([spec, each.spec(spec)], frame) for each in moved] == [True, False, False]
