"""Element types: one record per dtype, which lowering, the loop IR and every generator ask.

In: a ``torch.dtype``. Out: its ``ElementType``: its short name, what arithmetic on it is done in, whether loops hold it, the ends of its range.
How a language spells a type stands with the language (``codegen/cpp/dtypes.py``, ``codegen/triton/types.py``), as texts of scalar ops do; the tests
hold both to this table.
"""

from __future__ import annotations

import functools
import math

import torch
from attrs import frozen

Number = bool | int | float


@frozen(eq=False)
class ElementType:
    """``short``: its name in printed IR. ``computed``: what arithmetic on it is done in; float32 where it is a narrow float, whose results are rounded
    again. ``looped``: kernels read and write memory of it; a tensor of another type is copied and computed by libraries."""

    dtype: torch.dtype
    short: str
    computed: torch.dtype
    looped: bool = True

    @property
    def lowest(self) -> Number:
        """The identity of ``max``."""
        if self.dtype is torch.bool:
            return False
        return -math.inf if self.dtype.is_floating_point else torch.iinfo(self.dtype).min

    @property
    def highest(self) -> Number:
        """The identity of ``min``."""
        if self.dtype is torch.bool:
            return True
        return math.inf if self.dtype.is_floating_point else torch.iinfo(self.dtype).max


def _same(short: str, dtype: torch.dtype) -> ElementType:
    return ElementType(dtype, short, dtype)


#: Types that only some of the supported versions of torch have, by their names there.
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_TABLE = {
    row.dtype: row
    for row in (
        _same("bool", torch.bool),
        _same("u8", torch.uint8),
        _same("i8", torch.int8),
        _same("i16", torch.int16),
        _same("i32", torch.int32),
        _same("i64", torch.int64),
        _same("f32", torch.float32),
        _same("f64", torch.float64),
        ElementType(torch.float16, "f16", torch.float32),
        ElementType(torch.bfloat16, "bf16", torch.float32),
        *(
            ElementType(getattr(torch, name), name, torch.float32, looped=False)
            for name in _FLOAT8
            if hasattr(torch, name)
        ),
    )
}

LOOP_TYPES = frozenset(row.dtype for row in _TABLE.values() if row.looped)
"""What kernels compute with."""

HALVES = frozenset(dtype for dtype in LOOP_TYPES if _TABLE[dtype].computed is not dtype)
"""Those that are held, and rounded to, but not computed in: float16 and bfloat16."""

EIGHTHS = frozenset({torch.float8_e4m3fn})
"""Those of 8 bits that some kernels hold as well: they move them, and convert from and to them."""

NARROW = HALVES | EIGHTHS
"""All that is held, and rounded to, but not computed in."""


@functools.cache
def saturates(dtype: torch.dtype) -> bool:
    """Whether eager converts what is beyond the largest number of ``dtype`` to that number; versions of torch differ."""
    return not bool(torch.tensor(torch.finfo(dtype).max * 2, device="cpu").to(dtype).float().isnan())


def element_type(dtype: torch.dtype) -> ElementType:
    """The record of ``dtype``; of one that no stage knows more of, that it is computed in itself, by libraries."""
    found = _TABLE.get(dtype)
    return ElementType(dtype, str(dtype).removeprefix("torch."), dtype, looped=False) if found is None else found
