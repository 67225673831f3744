"""`GuardCollector`: the requirements met while tracing, as specs without repetition.

In: what the interpreter looked at. Out: `specs`, in order. What a trusted namespace (torch, the standard library) binds is assumed not
to change and gets no guard, but for its data and its switches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
from attrs import evolve

from ..sources.source import CallResult, Pinned, SourceError, resolve, root_of
from . import spec

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable

    from ..sources.source import Source


class Trust(Protocol):
    """What needs no guard; `interp.trust` has these functions."""

    def is_trusted_namespace(self, obj: Any) -> bool: ...
    def holds_still(self, obj: Any) -> bool: ...
    def is_setting(self, namespace: Any, name: Any, value: Any) -> bool: ...


class GuardCollector:
    """Guards of one trace."""

    def __init__(self, position: Callable[[], tuple[str, int, str] | None], trust: Trust) -> None:
        self.specs: dict[spec.GuardSpec, None] = {}
        self._position = position
        self._trust = trust
        self._known: dict[Source, bool] = {}
        self._bindings: dict[int, tuple[dict[str, Any], dict[str, tuple[Any, ...]]]] = {}
        self._members: dict[type, dict[tuple[str, type | None], spec.ClassMember]] = {}

    def size(self) -> int:
        """How many requirements there are: equal before and after something that nothing was asked for."""
        return len(self.specs) + len(self._bindings) + len(self._members)

    def add(self, guard: spec.GuardSpec) -> None:
        """One more requirement."""
        self.specs.setdefault(guard, None)

    def is_trusted(self, source: Source | None) -> bool:
        """Whether what `source` names is assumed not to change."""
        if source is None or isinstance(source, Pinned):
            return True
        known = self._known.get(source)
        if known is None:
            known = self._known[source] = self._trusts(source)
        return known

    def _contents_hold_still(self, source: Source) -> bool:
        if isinstance(source, Pinned):
            return self._trust.is_trusted_namespace(source.value)
        if not self.is_trusted(source):
            return False
        try:
            return self._trust.holds_still(resolve(source, {}, {}))
        except SourceError:
            return False

    def _trusts(self, source: Source) -> bool:
        """A trusted namespace and what can be reached from it through code and constants alone: not the contents of its data."""
        base = getattr(source, "base", None)
        if base is None or isinstance(source, CallResult) or not isinstance(root_of(source), Pinned):
            return False
        return self._contents_hold_still(base)

    def type_is(self, source: Source | None, cls: type) -> None:
        """The exact type."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.TypeIs(source, cls, position=self._position()))

    def number_is(self, source: Source, cls: type[int] | type[float], limit: float) -> None:
        """The exact type, and that the number's size is `limit` at most."""
        self.add(spec.NumberIs(source, cls, limit, position=self._position()))

    def identity(self, source: Source | None, obj: Any) -> None:
        """The very object."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.IdentityIs(source, obj, position=self._position()))

    def constant(self, source: Source | None, value: Any) -> None:
        """The very constant."""
        if source is not None and (not self.is_trusted(source) or self._is_setting(source, value)):
            self.add(spec.ConstantIs(source, value, position=self._position()))

    def _is_setting(self, source: Source, value: Any) -> bool:
        base = getattr(source, "base", None)
        name = getattr(source, "attribute", None) or getattr(source, "key", None)
        return isinstance(base, Pinned) and self._trust.is_setting(base.value, name, value)

    def answer(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], expected: Any
    ) -> None:
        """What the function returns for these arguments; it is called at every check."""
        pinned, position = Pinned(function), self._position()
        if not args and not kwargs and (expected is None or isinstance(expected, bool | int | str)):
            self.add(spec.ConstantIs(CallResult(pinned), expected, position=position))
            return
        self.add(
            spec.PythonCheck(
                pinned, lambda ask: ask(*args, **kwargs) == expected, f"the answer {expected!r}", position=position
            )
        )

    def member(self, cls: type, name: str, after: type | None, found: Any, owner: type | None) -> None:
        """Where a class has an attribute; written down together with everything else that the class was asked."""
        is_code = hasattr(type(found), "__get__") or (callable(found) and self._trust.is_trusted_namespace(owner))
        code = found if is_code else None
        self._members.setdefault(cls, {})[name, after] = spec.ClassMember(name, after, owner, code)

    def binding(self, namespace: dict[str, Any], name: str, *found: Any) -> None:
        """What the namespace of a trusted module binds, or that it does not have the name: programs patch functions there.

        Written down together with everything else that the module was asked. Other modules' objects have guards of their own.
        """
        if self._trust.is_trusted_namespace(namespace) and not (
            found and self._trust.is_setting(namespace, name, found[0])
        ):
            self._bindings.setdefault(id(namespace), (namespace, {}))[1][name] = (name, *found)

    def callees(self, members: dict[tuple[str, type | None], spec.ClassMember], bindings: Iterable[Any]) -> None:
        """What a function of torch calls by name: the members of tensors, and for each module the names that it binds."""
        asked = self._members.setdefault(torch.Tensor, {})
        asked.update((key, _where_it_is(torch.Tensor, member)) for key, member in members.items())
        for module, bound in bindings:
            names = vars(module)
            self._bindings.setdefault(id(names), (names, {}))[1].update(bound)

    def all(self) -> tuple[spec.GuardSpec, ...]:
        """Every requirement."""
        members = (spec.ClassMembers(Pinned(cls), tuple(asked.values())) for cls, asked in self._members.items())
        bindings = (spec.ModuleBindings(names, tuple(bound.values())) for names, bound in self._bindings.values())
        return (*self.specs, *members, *bindings)

    def length(self, source: Source | None, length: int) -> None:
        """The number of elements."""
        if source is not None and not isinstance(source, Pinned):
            self.add(spec.SequenceLength(source, length, position=self._position()))

    def dict_keys(self, source: Source, origin: dict[Any, Any]) -> None:
        """All keys in order; those of tables that torch keeps for its users (global hooks) too."""
        if not isinstance(source, Pinned):
            self.add(spec.DictKeys(source, spec.own_keys(origin), position=self._position()))

    def contains(self, source: Source, origin: dict[Any, Any], key: Any) -> None:
        """One key, there or not."""
        if not self._contents_hold_still(source):
            self.add(spec.Contains(source, key, spec.has_key(origin, key), position=self._position()))

    def absent(self, source: Source, key: str) -> None:
        """A name that a namespace does not have."""
        if not self._contents_hold_still(source):
            self.add(spec.Contains(source, key, False, position=self._position()))

    def lacks_attribute(self, source: Source, name: str) -> None:
        """An attribute that an object does not have, wherever it would be found."""
        if not self._contents_hold_still(source):
            self.add(spec.HasAttribute(source, name, False, position=self._position()))

    def empty(self, source: Source, slot: Any) -> None:
        """A slot that nothing is stored in."""
        if not self.is_trusted(source):
            self.holds(source, partial(_is_empty, slot), f"nothing in the slot {slot.__name__!r}")

    def holds(self, source: Source, predicate: Callable[[Any], bool], told: str) -> None:
        """What a Python function says of the object, at every check."""
        self.add(spec.PythonCheck(source, predicate, told, position=self._position()))

    def function(self, source: Source, function: types.FunctionType) -> None:
        """A function with the code and globals that this one has now; tools that reload code give functions another."""
        if not self._trust.is_trusted_namespace(function):
            position = self._position()
            self.add(spec.FunctionIs(source, function.__code__, function.__globals__, position=position))

    def members(self, source: Source | None, members: Any) -> None:
        """A set's members."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.SetEquals(source, frozenset(members), position=self._position()))

    def distinct(self, *sources: Source) -> None:
        """Paths to objects of which no two are the same."""
        if not all(map(self.is_trusted, sources)):
            self.add(spec.NoAlias(sources, position=self._position()))

    def alias(self, source: Source, other: Source) -> None:
        """Two paths to one object."""
        if source is not other and not (self.is_trusted(source) and self.is_trusted(other)):
            self.add(spec.AliasOf(source, other, position=self._position()))


def _is_empty(slot: Any, owner: Any) -> bool:
    try:
        slot.__get__(owner)
    except (AttributeError, TypeError) as error:
        return isinstance(error, AttributeError)
    return False


def _where_it_is(cls: type, member: spec.ClassMember) -> spec.ClassMember:
    """The member in the class that has it now: who replaces an inherited method and puts it back leaves it in a class below that."""
    owner = next((base for base in cls.__mro__ if member.name in vars(base)), member.owner)
    return member if owner is member.owner else evolve(member, owner=owner)
