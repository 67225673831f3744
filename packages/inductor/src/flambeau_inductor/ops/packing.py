"""Library calls that bring a weight into a form of the library's own.

In: an overload. Out: whether its result is opaque: it has no strides and no data pointer, and only the library's calls for such weights read it.
"""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload

_PACKING = frozenset({"mkl::_mkl_reorder_linear_weight", "mkldnn::_reorder_linear_weight", "mkldnn::_reorder_convolution_weight"})  # fmt: skip


def is_packing(op: Any) -> bool:
    """Whether the result of ``op`` is opaque."""
    return isinstance(op, OpOverload) and op._schema.name in _PACKING
