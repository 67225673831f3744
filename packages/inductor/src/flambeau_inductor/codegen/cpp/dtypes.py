"""How dtypes are spelled in generated C++: in memory, in a register, as a literal."""

from __future__ import annotations

import math

import torch

from ...ops.dtypes import HALVES, element_type

MEMORY = {
    torch.float32: "float",
    torch.float64: "double",
    torch.bfloat16: "fb::bf16",
    torch.float16: "fb::f16",
    torch.bool: "bool",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.int16: "int16_t",
    torch.int32: "int32_t",
    torch.int64: "int64_t",
}
"""Element types in memory; dtypes that are not here never reach a generated CPU kernel."""


def held(dtype: torch.dtype) -> str:
    """The type of a value in a register: half types are held as (already rounded) float."""
    return MEMORY[element_type(dtype).computed]


def is_free(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether a conversion changes nothing about the value in a register."""
    return held(source) == held(target) and (target not in HALVES or source is target)


def width(dtype: torch.dtype) -> int:
    """Bytes of a lane in a register."""
    return element_type(dtype).computed.itemsize


def vector(dtype: torch.dtype, paired: bool = False) -> str:
    """The vector type of W lanes, which are in two registers where they are ``paired``."""
    masks, values = ("TwoMasks", "Two") if paired else ("Mask", "Vec")
    return f"fb::{masks}<W>" if dtype is torch.bool else f"fb::{values}<{held(dtype)}, W>"


def literal(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant, exact."""
    if dtype is torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        if dtype is torch.int64 and value == -(1 << 63):
            return "(int64_t)(-9223372036854775807LL - 1)"
        return f"({MEMORY[dtype]})({int(value)}LL)"
    value = float(value) if dtype is torch.float64 else float(torch.tensor(value, dtype=dtype))
    kind = held(dtype)
    if math.isnan(value):
        return f'({kind})__builtin_nan("")'
    if math.isinf(value):
        return f"({kind})({'-' if value < 0 else ''}__builtin_inf())"
    return f"{value.hex()}{'f' if kind == 'float' else ''}"
