"""Results moved out of scratch memory, so that recordings may share it.

In: what a program returned, and places of the sizes that its results had in the warm-up. Out: the same tensors over
those places, filled by one launch. What lies in an input's memory stays there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import copying
from .table_py import is_plain


class ResultsDiffer(Exception):
    """The program's own results are not those of the warm-up: there are no places for them."""


def own_bytes(outputs: Sequence[Any], given: Sequence[Any]) -> tuple[int, ...] | None:
    """The sizes of the storages that are results and no input's; None where a result is no plain tensor."""
    storages = _own_storages(outputs, given)
    return None if storages is None else tuple(storage.nbytes() for storage in storages.values())


def settle(outputs: Sequence[Any], given: Sequence[Any], places: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """``outputs`` with the contents of their own storages in ``places``, flat bytes. Raises ``ResultsDiffer``."""
    storages = _own_storages(outputs, given)
    if storages is None:
        raise ResultsDiffer
    sources = [copying.bytes_of(storage) for storage in storages.values()]
    if [(source.device, source.nbytes) for source in sources] != [(place.device, place.nbytes) for place in places]:
        raise ResultsDiffer
    fill(places, sources)
    moved = {number: place.untyped_storage() for number, place in zip(storages, places)}
    return tuple(
        copying.over(moved[value.untyped_storage()._cdata], value)
        if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata in moved
        else value
        for value in outputs
    )


def fill(places: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Copy flat bytes, all of them by one launch; those of length 0 need none."""
    pairs = [(place, source) for place, source in zip(places, sources) if place.nbytes]
    if pairs:
        torch._foreach_copy_([place for place, _ in pairs], [source for _, source in pairs])


def _own_storages(outputs: Sequence[Any], given: Sequence[Any]) -> dict[int, torch.UntypedStorage] | None:
    """Each once, by identity, in the order in which the outputs name them."""
    inputs = {value.untyped_storage()._cdata for value in given if isinstance(value, torch.Tensor)}
    found: dict[int, torch.UntypedStorage] = {}
    for value in outputs:
        if not isinstance(value, torch.Tensor):
            continue
        if not is_plain(value):
            return None
        storage = value.untyped_storage()
        if storage._cdata not in inputs:
            found.setdefault(storage._cdata, storage)
    return found
