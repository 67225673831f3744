"""What a program gives where the operands of its products are rounded to TF32, as NVIDIA's libraries and our kernels round them.

In: a function of tensors. Out: what it gives under plain torch, each operand of a product or convolution of float32 rounded to 10 bits before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Where the operands of a product stand among the arguments.
_FACTORS = {
    **dict.fromkeys(("mm", "bmm", "_grouped_mm", "convolution"), (0, 1)),
    **dict.fromkeys(("addmm", "baddbmm"), (1, 2)),
}


def nearest_tf32(a: torch.Tensor) -> torch.Tensor:
    """``a`` with the nearest numbers of 10 bits, halves away from zero; infinities and NaN stay."""
    high = (a.contiguous().view(torch.int32) + 0x1000) & -0x2000
    return torch.where(a.isnan(), a, high.view(torch.float32))


class _RoundsFactors(TorchDispatchMode):
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = list(args)
        for number in _FACTORS.get(op.overloadpacket.__name__, ()):
            if given[number].dtype is torch.float32:
                given[number] = nearest_tf32(given[number])
        return op(*given, **(kwargs or {}))


def with_tf32(function: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """``function(*inputs)``, its products of numbers of TF32."""
    with _RoundsFactors():
        return function(*inputs)
