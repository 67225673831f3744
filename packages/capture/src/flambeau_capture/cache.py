"""Compiled entries seen from Python: which regions live, what they hold, and how to forget it.

Entries themselves live in the native region (`csrc/code_cache.cpp`), a short list per code object and region, most recently used first;
a region's entries die with it. The limit is the region's own (`Config.recompile_limit`): one region never spends another's, and within
a region no owner of a frame another owner's (`csrc/frame_owner.hpp`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from attrs import frozen

from .guards.explain import describe
from .guards.spec import GuardSpec
from .library import threading, weakref
from .native import _C

_regions: weakref.WeakSet[_C.Region] = weakref.WeakSet()
_lock = threading.Lock()


@frozen
class EntryInfo:
    """One compiled entry: the code it stands in for and its guards."""

    code: CodeType
    guards: tuple[GuardSpec, ...]

    def text(self) -> str:
        """One guard a line."""
        return "\n".join(describe(spec) for spec in self.guards)


def remember(region: _C.Region) -> None:
    """Add a region to those `reset` forgets; it is held weakly."""
    with _lock:
        _regions.add(region)


def entries_held(code: CodeType) -> int:
    """How many entries all regions that live hold for a code object."""
    with _lock:
        live = list(_regions)
    return sum(len(region.trees(code)) for region in live)


def entries_of(region: _C.Region) -> tuple[EntryInfo, ...]:
    """All entries of a region, by code object, most recently used first."""
    return tuple(EntryInfo(code, tuple(tree.specs)) for code in region.codes() for tree in region.trees(code))


def live_regions() -> tuple[_C.Region, ...]:
    """The regions that live."""
    with _lock:
        return tuple(_regions)


def forget_entries() -> None:
    """Forget every compiled entry and every decision to skip, in all regions."""
    for region in live_regions():
        region.forget()


def _nothing() -> None:
    pass


def reset() -> None:
    """Forget every compiled entry, every decision to skip, and what compiles have learnt about sizes, in all regions."""
    forget_entries()
    for region in live_regions():
        forget: Callable[[], None] = getattr(region.handler, "forget", _nothing)
        forget()
