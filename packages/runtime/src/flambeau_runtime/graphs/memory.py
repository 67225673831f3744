"""Which memory belongs to recordings, so that a program that is given it can read it in place.

In: recordings as they come and go. Out: whether a tensor lies in the results of one.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator

import torch

from .records import Recording

_LENT: dict[int, tuple[int, int]] = {}
"""Address of a storage that a recording hands out -> that recording's number, and its program's."""


def _addresses(recording: Recording) -> Iterator[int]:
    yield from {storage.data_ptr() for storage in recording.lent} - {0}


_RESERVED: dict[int, int] = {}
"""Bytes that each living recording reserved, by number."""

_READERS: dict[int, tuple[frozenset[int], int]] = {}
"""The addresses of others' results that each living recording reads, and what another one like it would reserve, by number."""

_NUMBERS = itertools.count()


def keep(recording: Recording, program: int) -> None:
    """Note a recording's memory and the storages of its results, for as long as it lives. ``program`` says whose it is."""
    addresses, number = tuple(_addresses(recording)), next(_NUMBERS)
    _LENT.update(dict.fromkeys(addresses, (number, program)))
    _RESERVED[number] = recording.reserved_bytes
    _READERS[number] = recording.borrowed, recording.again_bytes
    weakref.finalize(recording, _forget, addresses, number).atexit = False


def reserved_bytes() -> int:
    """Device memory that the recordings of this process took."""
    return sum(_RESERVED.values())


def turn_bytes(recording: Recording) -> int:
    """What a second one beside ``recording`` would take: as much again, and what reads its results is recorded a second time too."""
    lent = frozenset(_addresses(recording))
    return recording.again_bytes + sum(again for read, again in _READERS.values() if read & lent)


def _forget(addresses: tuple[int, ...], number: int) -> None:
    del _RESERVED[number], _READERS[number]
    for address in addresses:
        if _LENT.get(address, (None,))[0] == number:
            del _LENT[address]


def is_lent(tensor: torch.Tensor, program: int) -> bool:
    """Whether the tensor's memory is a result of another program's recording: it will be at the same address again."""
    found = _LENT.get(tensor.untyped_storage().data_ptr())
    return found is not None and found[1] != program


def gone(recording: Recording) -> bool:
    """Whether a recording reads results of one that does not exist any more: it will hardly fit again."""
    return not _LENT.keys() >= recording.borrowed
