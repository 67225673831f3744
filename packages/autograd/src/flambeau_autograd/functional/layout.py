"""In which order a tensor's dimensions lie in memory.

In: a fake tensor. Out: its dimensions from the outermost to the innermost, for dense memory; strides are compared by their hints.
"""

from __future__ import annotations

from typing import Any

import torch


def hint(value: Any) -> int | None:
    """The number, or the one that a symbolic number stood for when it was made."""
    if isinstance(value, int):
        return value
    known = value.node.hint if isinstance(value, torch.SymInt) else None
    return int(known) if known is not None else None


def fill_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions in the order in which eager's loops fill the tensor, gaps or not: the largest stride outermost."""
    natural = tuple(range(tensor.dim()))
    strides = [hint(s) for s in tensor.stride()]
    if None in strides:
        return natural
    moving = [d for d in natural if hint(tensor.shape[d]) != 1]
    ordered = iter(sorted(moving, key=lambda d: -(strides[d] or 0)))
    return tuple(next(ordered) if d in moving else d for d in natural)


def dense_order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions from the largest stride to the smallest where the tensor is dense, else 0, 1, 2, …"""
    natural = tuple(range(tensor.dim()))
    sizes = [hint(s) for s in tensor.shape]
    strides = [hint(s) for s in tensor.stride()]
    if None in sizes or None in strides:
        return natural
    order = sorted(natural, key=lambda d: (-(strides[d] or 0), -(sizes[d] or 0), d))
    expected = 1
    for dim in reversed(order):
        if sizes[dim] != 1 and strides[dim] != expected:
            return natural
        expected *= sizes[dim] or 1
    contiguous = 1
    for dim in reversed(natural):
        if sizes[dim] != 1 and strides[dim] != contiguous:
            return tuple(order)
        contiguous *= sizes[dim] or 1
    return natural


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a block of memory, each in a place of its own."""
    pairs = [(hint(step), hint(size)) for size, step in zip(tensor.shape, tensor.stride()) if hint(size) != 1]
    if any(None in pair for pair in pairs):
        return False
    expected = 1
    for step, size in sorted(pairs):
        if step != expected:
            return False
        expected *= size or 1
    return True
