"""Which tensors have memory in common.

In: tensors, some of which are written. Out: whether the memory of one of those is that of another tensor, too. NumPy's arrays and what comes by DLPack have
a storage for each tensor that is made of them, which begins anywhere in the array: memory is compared by addresses, not by storages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def share_memory(written: Sequence[Any], read: Sequence[Any]) -> bool:
    """Whether one of `written` has memory in common with another of them or with one of `read`. What is no strided tensor is only itself."""
    spans = sorted(
        (*_span(value), is_written) for values, is_written in ((written, True), (read, False)) for value in values
    )
    end, end_of_written = -1, -1
    for start, after, is_written in spans:
        if start < (end if is_written else end_of_written):
            return True
        end = max(end, after)
        if is_written:
            end_of_written = max(end_of_written, after)
    return False


def _span(value: Any) -> tuple[int, int]:
    """The first address of a tensor's storage and the one behind it; of what has none, an address of its own."""
    if isinstance(value, torch.Tensor) and value.layout is torch.strided:
        storage = value.untyped_storage()
        start = storage.data_ptr()
        return (start, start + max(storage.nbytes(), 1)) if start else (storage._cdata, storage._cdata + 1)
    return id(value), id(value) + 1
