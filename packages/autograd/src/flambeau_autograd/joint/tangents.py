"""The layout in which the backward expects each incoming gradient.

In: a forward result. Out: a dimension order (outermost first) and a dense fake tensor in that order. At run time a
gradient that is laid out otherwise is copied into this order before the backward sees it.
"""

from __future__ import annotations

from typing import Any

import torch

from ..functional.layout import dense_order


def dense_like(tensor: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """An empty tensor of the same shape, dense in `order`."""
    strides: list[Any] = [0] * tensor.dim()
    step: Any = 1
    for dim in reversed(order):
        strides[dim] = step
        size = tensor.shape[dim]
        step = step * (size if not (isinstance(size, int) and size == 0) else 1)
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)


__all__ = ["dense_like", "dense_order"]
