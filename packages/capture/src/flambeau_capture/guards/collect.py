"""`GuardCollector`: the requirements met while tracing, as specs without repetition.

In: what the interpreter looked at. Out: `specs`, in order. Paths that start at a pinned object of a trusted namespace (torch, the
standard library) are assumed not to change and get no guard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..sources.source import CallResult, Pinned, root_of
from . import spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sources.source import Source


class GuardCollector:
    """Guards of one trace."""

    def __init__(self, position: Callable[[], tuple[str, int, str] | None], trusted: Callable[[Any], bool]) -> None:
        self.specs: dict[spec.GuardSpec, None] = {}
        self._position = position
        self._trusted = trusted
        self._roots: dict[int, bool] = {}

    def add(self, guard: spec.GuardSpec) -> None:
        """One more requirement."""
        self.specs.setdefault(guard, None)

    def is_trusted(self, source: Source | None) -> bool:
        """Whether what `source` names is assumed not to change."""
        if source is None:
            return True
        root = root_of(source)
        if not isinstance(root, Pinned):
            return False
        if root is source:
            return True
        known = self._roots.get(id(root))
        if known is None:
            known = self._roots[id(root)] = self._trusted(root.value)
        return known

    def type_is(self, source: Source | None, cls: type) -> None:
        """The exact type."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.TypeIs(source, cls, position=self._position()))

    def identity(self, source: Source | None, obj: Any) -> None:
        """The very object."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.IdentityIs(source, obj, position=self._position()))

    def constant(self, source: Source | None, value: Any) -> None:
        """The very constant."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.ConstantIs(source, value, position=self._position()))

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

    def length(self, source: Source | None, length: int) -> None:
        """The number of elements."""
        if source is not None and not isinstance(source, Pinned):
            self.add(spec.SequenceLength(source, length, position=self._position()))

    def dict_keys(self, source: Source, origin: dict[Any, Any]) -> None:
        """All keys in order; those of tables that torch keeps for its users (global hooks) too."""
        if not isinstance(source, Pinned):
            self.add(spec.DictKeys(source, tuple(origin), position=self._position()))

    def contains(self, source: Source, origin: dict[Any, Any], key: Any) -> None:
        """One key, there or not."""
        if not self.is_trusted(source):
            self.add(spec.Contains(source, key, key in origin, position=self._position()))

    def absent(self, source: Source, key: str) -> None:
        """A name that a namespace does not have."""
        if not self.is_trusted(source):
            self.add(spec.Contains(source, key, False, position=self._position()))

    def lacks_attribute(self, source: Source, name: str) -> None:
        """An attribute that an object does not have; for objects whose `__dict__` is made on first use."""
        if not self.is_trusted(source):
            self.add(spec.HasAttribute(source, name, False, position=self._position()))

    def function(self, source: Source | None, code: Any) -> None:
        """A function with this code."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.FunctionIs(source, code, position=self._position()))

    def members(self, source: Source | None, members: Any) -> None:
        """A set's members."""
        if source is not None and not self.is_trusted(source):
            self.add(spec.SetEquals(source, frozenset(members), position=self._position()))

    def distinct(self, source: Source, other: Source) -> None:
        """Two paths to different objects."""
        if not (self.is_trusted(source) and self.is_trusted(other)):
            self.add(spec.NoAlias((source, other), position=self._position()))

    def alias(self, source: Source, other: Source) -> None:
        """Two paths to one object."""
        if source is not other and not (self.is_trusted(source) and self.is_trusted(other)):
            self.add(spec.AliasOf(source, other, position=self._position()))
