"""What is known of the machine's processor.

In: nothing. Out: who made it and what instructions it has, as Linux tells; nothing where it does not.
"""

from __future__ import annotations

import functools
import platform
from pathlib import Path

_FILE = Path("/proc/cpuinfo")


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
