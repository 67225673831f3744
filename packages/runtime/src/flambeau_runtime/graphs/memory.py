"""Which memory belongs to recordings, so that a program that is given it can read it in place.

In: recordings as they come and go. Out: whether a tensor lies in the results of one.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Iterator

import torch

from .records import Recording

_LENT: Counter[int] = Counter()
"""Addresses of the storages that recordings of this process hand out."""


def _addresses(recording: Recording) -> Iterator[int]:
    yield from {storage.data_ptr() for storage in recording.lent} - {0}


_RESERVED: dict[int, int] = {}
"""Bytes that each living recording reserved, by number."""

_NUMBERS = itertools.count()


def keep(recording: Recording) -> None:
    """Note a recording's memory and the storages of its results, for as long as it lives."""
    addresses, number = tuple(_addresses(recording)), next(_NUMBERS)
    _LENT.update(addresses)
    _RESERVED[number] = recording.reserved_bytes
    weakref.finalize(recording, _forget, addresses, number).atexit = False


def reserved_bytes() -> int:
    """Device memory that the recordings of this process took."""
    return sum(_RESERVED.values())


def _forget(addresses: tuple[int, ...], number: int) -> None:
    _LENT.subtract(addresses)
    del _RESERVED[number]


def is_lent(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is some recording's result: it will be at the same address again."""
    return _LENT[tensor.untyped_storage().data_ptr()] > 0
