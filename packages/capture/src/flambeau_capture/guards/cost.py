"""What guards cost: each is checked by itself, many times, on the frame that they were made from.

In: specs, a frame. Out: seconds, one a spec: of a native tree that holds it alone, with the way to the object that it is about, less those of a tree that
holds nothing. Guards of one tree share that way, so that all together take less than the sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import CodeType
from typing import Any

from ..errors import GuardBuildError
from ..library import time
from .build import build
from .spec import GuardSpec

ROUNDS = 64
"""How often each is checked; the best of four parts counts."""


At = tuple[Mapping[str, Any], dict[str, Any], Any]


def guard_seconds(specs: Sequence[GuardSpec], code: CodeType, at: At) -> list[float | None]:
    """Seconds of a check of each guard on a frame of `code`, `at` being its locals, globals and builtins; None for one that no tree can hold by itself."""
    nothing = _seconds((), code, at) or 0.0
    found = [_seconds((spec,), code, at) for spec in specs]
    return [None if taken is None else max(taken - nothing, 0.0) for taken in found]


def _seconds(specs: tuple[GuardSpec, ...], code: CodeType, at: At) -> float | None:
    try:
        tree, _ = build(specs, code)
    except GuardBuildError:
        return None
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        for _ in range(ROUNDS // 4):
            tree.check(*at)
        best = min(best, time.perf_counter() - started)
    return best / (ROUNDS // 4)
