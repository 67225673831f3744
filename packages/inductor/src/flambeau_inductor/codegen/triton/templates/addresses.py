"""Where operands of attention lie, as numbers and texts.

In: sizes and strides of known values. Out: integers, and texts of positions in elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from .... import expr as ex
from ....ir.layout import Ref


def stepped(text: str, stride: ex.Expr) -> str:
    """A position in steps of ``stride``."""
    return text if stride is ex.ONE else f"{text} * {int(stride)}"


def lane_strides(ref: Ref) -> tuple[int, int]:
    """What a step of one batch and one head is, 0 for what all of them share."""
    first, second = (
        0 if size.is_int and int(size) == 1 else int(stride) for size, stride in zip(ref.sizes[:2], ref.strides[:2])
    )
    return first, second


def integers(values: Sequence[ex.Expr]) -> list[int]:
    return [int(value) for value in values]


def bytes_of(sizes: Sequence[ex.Expr], dtype: torch.dtype) -> int:
    return math.prod(integers(sizes)) * dtype.itemsize
