"""Cache keys: named parts, so that a miss can be explained part by part."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping

from attrs import field, frozen

_KIND = re.compile(r"[a-z][a-z0-9_]{0,30}")
_ABSENT = "(absent)"
_LONGEST = 120
_BEFORE = 40


def _sorted_parts(parts: Mapping[str, str] | tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    items = parts.items() if isinstance(parts, Mapping) else parts
    return tuple(sorted((str(name), str(value)) for name, value in items))


@frozen
class CacheKey:
    """What decides an entry: its ``kind`` (a folder name) and named ``parts``.

    Parts name content (sources, versions, flags), never a rank, a device ordinal, a path or a time.
    """

    kind: str = field()
    parts: tuple[tuple[str, str], ...] = field(converter=_sorted_parts)
    digest: str = field(init=False)

    @kind.validator
    def _check_kind(self, attribute: object, value: str) -> None:
        if not _KIND.fullmatch(value):
            raise ValueError(f"a cache kind is a short lower-case name, not {value!r}")

    @digest.default
    def _digest(self) -> str:
        return hashlib.sha256(json.dumps([self.kind, self.parts]).encode()).hexdigest()

    def difference(self, other: Mapping[str, str]) -> tuple[str, ...]:
        """The names of the parts whose values differ from ``other``'s."""
        mine = dict(self.parts)
        return tuple(name for name in sorted({*mine, *other}) if mine.get(name) != other.get(name))


def where_different(stored: str, wanted: str) -> str:
    """ ": 'a' is stored, 'b' is wanted", of long texts the first line that differs, from a little before the place."""
    lines = list(itertools.zip_longest(stored.splitlines(), wanted.splitlines(), fillvalue=_ABSENT))
    unlike = [number for number, (one, other) in enumerate(lines) if one != other]
    if not unlike:
        return f": {stored!r} is stored, {wanted!r} is wanted"
    one, other = lines[unlike[0]]
    same = next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )
    begin = max(same - _BEFORE, 0) if max(len(one), len(other)) > _LONGEST else 0
    place = "" if len(lines) == 1 else f", {len(unlike)} of {len(lines)} lines, the first of them line {unlike[0] + 1}"
    return f"{place}: {_part(one, begin)} is stored, {_part(other, begin)} is wanted"


def _part(line: str, begin: int) -> str:
    end = begin + _LONGEST
    return f"{'…' if begin else ''}{line[begin:end]!r}{'…' if len(line) > end else ''}"
