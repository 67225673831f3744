"""Copies and conversions: the same elements in another dtype, device or layout.

In: one tensor. Out: a lazy tensor that remembers the strides eager gives it, or a library call across devices.
"""

from __future__ import annotations

from typing import Any

import torch

from ..ops.aten import Trait
from ..ops.dtypes import NARROW
from .builder import Builder
from .registry import Decline, lowers
from .values import TensorValue, broadcast_index


def _fresh(g: Builder, a: TensorValue, dtype: torch.dtype) -> TensorValue:
    """A copy: new memory when stored, so it is not a view of ``a``."""
    result = g.lazy(a.sizes, dtype, a.device, lambda index: g.convert(a.at(index), dtype))
    result.strides = g.wanted_strides(g.out)
    return result


@lowers("_to_copy", traits=Trait.CONVERTS)
def to_copy(
    g: Builder,
    a: TensorValue,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> TensorValue:
    if (device is not None and torch.device(device).type != a.device.type) or g.out.device != a.device:
        raise Decline("copy between devices")
    if pin_memory or (layout is not None and layout is not torch.strided):
        raise Decline("layout")
    return _fresh(g, a, dtype or a.dtype)


@lowers("clone", traits=Trait.MOVES)
def clone(g: Builder, a: TensorValue, *, memory_format: Any = None) -> TensorValue:
    return _fresh(g, a, a.dtype)


@lowers("contiguous")
def contiguous(g: Builder, a: TensorValue, *, memory_format: Any = None) -> TensorValue:
    return _fresh(g, a, a.dtype)


@lowers("alias", "detach", traits=Trait.MOVES)
@lowers("lift_fresh_copy", "lift_fresh", "lift")
def alias(g: Builder, a: TensorValue) -> TensorValue:
    return a


@lowers("view.dtype")
def view_dtype(g: Builder, a: TensorValue, dtype: torch.dtype) -> TensorValue:
    if a.dtype.itemsize != dtype.itemsize or torch.bool in (a.dtype, dtype):
        raise Decline("bit cast to another width")
    if not {a.dtype, dtype}.isdisjoint(NARROW):
        raise Decline("the bits of a narrow type, which loops hold as float32")
    from ..ir import scalar as sc

    return g.lazy(a.sizes, dtype, a.device, lambda index: sc.op("bitcast", a.at(index), dtype=dtype))


@lowers("to.dtype")
def to_dtype(g: Builder, a: TensorValue, dtype: torch.dtype) -> TensorValue:
    return _fresh(g, a, dtype)


@lowers("copy")
def copy(g: Builder, a: TensorValue, source: Any, non_blocking: bool = False) -> TensorValue:
    if not isinstance(source, TensorValue):
        raise Decline("a copy of a number")
    if source.device != a.device:
        raise Decline("copy between devices")
    return g.lazy(
        a.sizes,
        a.dtype,
        a.device,
        lambda index: g.convert(source.at(broadcast_index(source.sizes, a.sizes, index)), a.dtype),
    )
