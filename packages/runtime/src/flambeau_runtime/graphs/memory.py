"""Which memory belongs to recordings, so that a program that is given it can read it in place.

In: recordings as they come and go. Out: whether a tensor lies in the results of one.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator

import torch

from .records import Recording

_LENT: Counter[int] = Counter()
"""Addresses of the storages that recordings of this process hand out."""


def _addresses(recording: Recording) -> Iterator[int]:
    yield from {storage.data_ptr() for storage in recording.lent} - {0}


def lend(recording: Recording) -> None:
    """Note the storages of a recording's results, for as long as the recording lives."""
    addresses = tuple(_addresses(recording))
    _LENT.update(addresses)
    weakref.finalize(recording, _LENT.subtract, addresses).atexit = False


def is_lent(tensor: torch.Tensor) -> bool:
    """Whether the tensor's memory is some recording's result: it will be at the same address again."""
    return _LENT[tensor.untyped_storage().data_ptr()] > 0
