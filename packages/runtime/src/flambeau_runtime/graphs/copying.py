"""Tensors as the bytes they span: what a placeholder is, and how it is filled.

In: an input of any strides. Out: a placeholder with the same sizes and strides in memory of its own, and copies between
the two. The bytes from the first element to the last are copied as one run, gaps included, so that one copy serves every
layout. Writing back to a tensor with gaps goes element by element: the gaps may belong to someone else.
"""

from __future__ import annotations

import torch


def span(tensor: torch.Tensor) -> int:
    """Elements from the first to the last that ``tensor`` reaches; 0 when it is empty."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


def placeholder_for(tensor: torch.Tensor) -> torch.Tensor:
    """Uninitialised memory with the sizes and strides of ``tensor``."""
    memory = torch.empty(span(tensor), dtype=tensor.dtype, device=tensor.device)
    return memory.as_strided(tensor.shape, tensor.stride())


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether every element of the span is an element of ``tensor``, once."""
    return span(tensor) == tensor.numel()


def fill(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy the span of ``source`` over that of ``target``; both have the same sizes, strides and dtype."""
    count = span(source)
    target.as_strided((count,), (1,)).copy_(source.as_strided((count,), (1,)))


def write_back(target: torch.Tensor, placeholder: torch.Tensor) -> None:
    """Copy the elements of ``placeholder`` into ``target``."""
    if is_dense(target):
        fill(target, placeholder)
    else:
        target.copy_(placeholder)


def window(source: torch.Tensor, sample: torch.Tensor, shift: int) -> torch.Tensor:
    """``sample``'s sizes, strides and dtype over the storage of ``source``, ``shift`` elements after its offset."""
    made = torch.empty(0, dtype=sample.dtype, device=source.device)
    offset = source.storage_offset() * source.element_size() // sample.element_size() + shift
    return made.set_(source.untyped_storage(), offset, sample.shape, sample.stride())


def over(storage: torch.UntypedStorage, sample: torch.Tensor) -> torch.Tensor:
    """A new tensor with ``sample``'s layout over ``storage``."""
    made = torch.empty(0, dtype=sample.dtype, device=storage.device)
    return made.set_(storage, sample.storage_offset(), sample.shape, sample.stride())


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """All of the storage as flat bytes."""
    made = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return made.set_(storage, 0, (storage.nbytes(),), (1,))


def copy_of(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """The same bytes in memory of their own."""
    return bytes_of(storage).clone().untyped_storage()
