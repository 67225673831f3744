"""What is known of the machine's processor.

In: nothing. Out: who made it, what instructions it has and how large its caches are, as Linux tells; nothing where it does not.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_FILE = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@functools.cache
def _said(*names: str) -> str:
    """Behind the first of ``names`` that the description of the first core has."""
    try:
        lines = _FILE.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(names)), "")


def maker() -> str:
    """Who made the processor, as it says itself: ``"GenuineIntel"``, ``"AuthenticAMD"``; empty where nobody tells."""
    return _said("vendor_id")


def features() -> frozenset[str]:
    """The instruction sets that it has: ``"avx2"``, ``"avx512f"``; where nobody tells, no more than its name."""
    return frozenset((_said("flags", "Features") or platform.processor()).split())


@functools.cache
def cache_bytes(level: int) -> int:
    """The size of the first core's cache of a level, which other cores may share; 0 where nobody tells."""
    for folder in sorted(_CACHES.glob("index*")):
        try:
            found, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if found == str(level) and kind != "Instruction":
                return int(size.rstrip("KMG")) * _UNITS.get(size[-1:], 1)
        except (OSError, ValueError):
            continue
    return 0
