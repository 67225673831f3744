"""The native guard tree and its Python twin agree on members of classes, bindings of modules and bases of containers."""

from __future__ import annotations

import types

from flambeau_capture.guards import spec as gs
from flambeau_capture.guards.build import build
from flambeau_capture.guards.explain import describe, explain
from flambeau_capture.sources import source as src

from .agreement import agree


def _member(cls, name, after=None):
    order = cls.__mro__ if after is None else cls.__mro__[cls.__mro__.index(after) + 1 :]
    owner = next((base for base in order if name in vars(base)), None)
    found = None if owner is None else vars(owner)[name]
    return gs.ClassMember(name, after, owner, found if hasattr(type(found), "__get__") else None)


def _asked_of(guard):
    """Whether guards that read no names hold: one tree that is asked again and again, as a new tree and the twin say it."""
    tree = build(guard)[0]

    def holds():
        native = tree.check({}, {}) < 0
        assert native == agree(guard, {})
        return native

    return holds


def test_members_of_classes():
    """Found, inherited, absent and behind a class; written to, shadowed, restored, in a base."""

    class Base:
        def method(self):
            return 1

        data = 3

    class Derived(Base):
        def own(self):
            return 2

    asked = [("method", None), ("data", None), ("own", None), ("absent", None), ("method", Derived), ("__len__", Base)]
    guard = [gs.ClassMembers(src.Pinned(Derived), tuple(_member(Derived, name, after) for name, after in asked))]
    holds = _asked_of(guard)

    assert holds() and holds()
    Base.data = 4
    Derived.unrelated = 1
    assert holds() and holds()
    for name, value in [("absent", 1), ("data", 5), ("method", lambda self: 3)]:
        setattr(Derived, name, value)
        assert not holds()
        delattr(Derived, name)
        assert holds()
    method = Base.method
    Base.method = lambda self: 4
    assert not holds()
    Base.method = method
    assert holds()
    Base.__len__ = lambda self: 0
    assert holds()
    del Derived.own
    assert not holds()
    assert "absent" in explain(guard[0], {}, {})


def test_bindings_of_modules():
    """Replaced, restored, deleted, and there where it was not; what else the module binds is its own affair."""
    module = types.ModuleType("somebody")
    names = vars(module)
    names["function"] = original = len
    guard = [gs.ModuleBindings(names, (("function", len), ("absent",)))]
    holds = _asked_of(guard)

    assert holds() and holds()
    module.unrelated = 1
    assert holds() and holds()
    module.function = abs
    assert not holds()
    assert "somebody: function was replaced" in explain(guard[0], {}, {})
    module.function = original
    assert holds()
    del module.function
    assert not holds()
    module.function = original
    module.absent = None
    assert not holds()
    del module.absent
    assert holds()
    assert "absent, function" in describe(guard[0])


def test_what_a_container_holds_is_asked_of_its_base():
    """Whatever its class says when it is iterated over; what is no dict or set says it itself."""

    class Claims(dict):
        def __iter__(self):
            raise AssertionError("asked")

    class Members(set):
        def __iter__(self):
            raise AssertionError("asked")

    assert gs.own_keys(Claims(a=1, b=2)) == ("a", "b")
    assert gs.own_keys(Members((3,))) == (3,)
    assert gs.own_keys(types.MappingProxyType({"c": 1})) == ("c",)
