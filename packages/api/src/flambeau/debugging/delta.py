"""Delta debugging: which of several things are needed for a failure.

In: the things, and a question "does it fail with these alone?". Out: some of them with which it does, no part of which that was tried does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def fewest(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Zeller's ddmin over what is kept; all of it fails, and none of it is not asked for."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        length = -(-len(kept) // parts)
        chunks = [kept[at : at + length] for at in range(0, len(kept), length)]
        for chosen in _choices(chunks):
            if fails(chosen):
                kept = list(chosen)
                parts = max(2, parts - 1) if len(chosen) > length else 2
                break
        else:
            if length == 1:
                break
            parts = min(len(kept), 2 * parts)
    return kept


def _choices(chunks: Sequence[Sequence[Item]]) -> Iterator[list[Item]]:
    yield from (list(chunk) for chunk in chunks)
    if len(chunks) > 2:
        for left in range(len(chunks)):
            yield [item for at, chunk in enumerate(chunks) if at != left for item in chunk]
