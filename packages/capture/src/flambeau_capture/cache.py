"""Compiled entries seen from Python: which regions live, and how to forget what they hold.

Entries themselves live in the native region (`csrc/code_cache.cpp`), a short list per code object and region, most recently used first;
a region's entries die with it. The limit is the region's own (`Config.recompile_limit`): one region never spends another's.
"""

from __future__ import annotations

import threading
import weakref

from .native import _C

_regions: weakref.WeakSet[_C.Region] = weakref.WeakSet()
_lock = threading.Lock()


def remember(region: _C.Region) -> None:
    """Add a region to those `reset` forgets; it is held weakly."""
    with _lock:
        _regions.add(region)


def reset() -> None:
    """Forget every compiled entry and every decision to skip, in all regions."""
    with _lock:
        live = list(_regions)
    for region in live:
        region.forget()
