"""A table that packages fill when they are imported: one record for a key, never two.

In: ``register(key, record)``. Out: ``get(key)`` and ``records()``. Backends and languages of others enter through these tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Registry(Generic[K, V]):
    """Records by their key. ``kind`` says in errors what they are."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._records: dict[K, V] = {}

    def register(self, key: K, record: V) -> V:
        """Enter ``record``, and give it back. Raises ValueError for a key that has one."""
        if key in self._records:
            raise ValueError(f"{self._kind} {key} is registered twice")
        self._records[key] = record
        return record

    @contextmanager
    def registered(self, key: K, record: V) -> Iterator[V]:
        """``register`` for the length of a block."""
        self.register(key, record)
        try:
            yield record
        finally:
            del self._records[key]

    @contextmanager
    def replaced(self, key: K, record: V) -> Iterator[V]:
        """``record`` in the place of the one that ``key`` has, for the length of a block."""
        before = self._records[key]
        self._records[key] = record
        try:
            yield record
        finally:
            self._records[key] = before

    def get(self, key: K) -> V | None:
        """The record of a key, or None."""
        return self._records.get(key)

    def records(self) -> tuple[V, ...]:
        """Every record, in the order of registration."""
        return tuple(self._records.values())
