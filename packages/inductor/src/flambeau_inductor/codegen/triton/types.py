"""torch dtypes as Triton writes them.

In: a ``torch.dtype``. Out: the text of a type in kernel source (``tl.float32``), of a pointer in a signature (``*fp32``), and of
a literal.
"""

from __future__ import annotations

import math

import torch

from ..errors import UnsupportedKernel

_NAMES: dict[torch.dtype, tuple[str, str]] = {
    torch.bool: ("int1", "i1"),
    torch.uint8: ("uint8", "u8"),
    torch.int8: ("int8", "i8"),
    torch.int16: ("int16", "i16"),
    torch.int32: ("int32", "i32"),
    torch.int64: ("int64", "i64"),
    torch.uint16: ("uint16", "u16"),
    torch.uint32: ("uint32", "u32"),
    torch.uint64: ("uint64", "u64"),
    torch.float16: ("float16", "fp16"),
    torch.bfloat16: ("bfloat16", "bf16"),
    torch.float32: ("float32", "fp32"),
    torch.float64: ("float64", "fp64"),
    torch.float8_e4m3fn: ("float8e4nv", "fp8e4nv"),
}
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


def _names(dtype: torch.dtype) -> tuple[str, str]:
    found = _NAMES.get(dtype)
    if found is None:
        raise UnsupportedKernel(f"Triton kernels do not hold {dtype}")
    return found


def type_text(dtype: torch.dtype) -> str:
    """``tl.float32`` for ``torch.float32``. Raises UnsupportedKernel for a dtype that kernels do not hold."""
    return f"tl.{_names(dtype)[0]}"


def signature_text(dtype: torch.dtype) -> str:
    """``fp32`` for ``torch.float32``, as in a kernel's signature."""
    return _names(dtype)[1]


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A scalar block holding ``value`` in ``dtype``."""
    return f"tl.full([], {number(value)}, {type_text(dtype)})"


def number(value: bool | int | float) -> str:
    """A Python number as kernel source, infinities and NaN included."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def bits(dtype: torch.dtype) -> int:
    """The width of a value in bits."""
    return dtype.itemsize * 8
