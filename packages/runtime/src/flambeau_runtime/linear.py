"""The operators of linear layers in float32 on a CPU, by a kernel of our own.

In: nothing. Out: ``linear_ops()``: ``flambeau::linear(x, weight, bias, most)`` of ``x`` (m, k) and ``weight`` (n, k), both of any strides, and ``bias`` (n) or None gives
``x @ weight.t() + bias``, row-major, by the library where m is more than ``most`` or leaves lanes of the kernel empty; ``flambeau::pack_linear_weight(weight)`` lays a weight out as the kernel reads it, for ``flambeau::packed_linear(x, packed, n, bias)``. They are in the extension
(``csrc/linear.cpp``); where that or the instructions (AVX-512) are missing there are none.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from attrs import frozen

from . import processor
from .errors import ExtensionError
from .extension import extension

#: Columns of a panel of a packed weight.
PANEL = 32


@frozen
class LinearOps:
    """Overloads."""

    linear: Any
    pack: Any
    packed_linear: Any


@functools.cache
def linear_ops() -> LinearOps | None:
    """The operators; None where they cannot be had."""
    try:
        extension()
    except ExtensionError:
        return None
    ops = torch.ops.flambeau
    return LinearOps(ops.linear.default, ops.pack_linear_weight.default, ops.packed_linear.default)


def has_kernel() -> bool:
    """Whether the operators are there and the processor has their instructions."""
    return "avx512f" in processor.features() and linear_ops() is not None
