"""What is checked of a library call's result; the native executor does the same in C++.

In: a ``Hold``, the tensor in its register, the predicted sizes and strides of this run. Out: the tensor to go on with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .accelerators import stands_in
from .artifact import Hold
from .errors import PredictionError
from .text import layout_text

_LAZY_BITS = ("is_conj", "is_neg", "_is_zerotensor")


def held(hold: Hold, value: torch.Tensor | None, sizes: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
    """``value``, or a copy in the predicted ``strides``. Raises PredictionError where more than the strides differs."""
    if value is None or value.layout != torch.strided:
        raise PredictionError(_message(hold, "no strided tensor", sizes, strides))
    if value.dtype != hold.dtype or tuple(value.shape) != tuple(sizes) or not _device_fits(hold, value):
        found = layout_text(value.dtype, tuple(value.shape), value.stride(), value.device)
        raise PredictionError(_message(hold, found, sizes, strides))
    lies = value.numel() == 0 or all(
        size <= 1 or want == got for size, want, got in zip(sizes, strides, value.stride(), strict=True)
    )
    if lies and not any(getattr(value, bit)() for bit in _LAZY_BITS):
        return value
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).copy_(value)


def _device_fits(hold: Hold, value: torch.Tensor) -> bool:
    return value.device.type == hold.device.type or stands_in(hold.device, value)


def _message(hold: Hold, found: str, sizes: Sequence[int], strides: Sequence[int]) -> str:
    predicted = layout_text(hold.dtype, tuple(sizes), tuple(strides), hold.device)
    return f"{hold.op or 'a call'} returned {found} where {predicted} was predicted"
