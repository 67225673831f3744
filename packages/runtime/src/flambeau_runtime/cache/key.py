"""Cache keys: named parts, so that a miss can be explained part by part."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from attrs import field, frozen

_KIND = re.compile(r"[a-z][a-z0-9_]{0,30}")


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
