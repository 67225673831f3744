"""Positions in a tensor that no example stands for: `x[n]`, `x[0, n]`, where `n` is read out of a tensor.

In: a tensor and a key. Out: the window that the key names, by `Tensor.select`: what torch makes of a tensor and a key wants numbers. None where no
such number is in the key.
"""

from __future__ import annotations

from operator import getitem
from typing import TYPE_CHECKING, Any

import torch

from ..signals import GraphBreak
from .base import Value
from .constants import ConstantValue
from .sequences import SliceValue, TupleValue
from .symbolic import SymbolicValue

if TYPE_CHECKING:
    from .base import Tracer


def window(t: Tracer, tensor: Value, dimensions: int, key: Value) -> Any:
    """`tensor[key]` of a tensor with so many dimensions, where a position in the key is open; else None."""
    key = key.realise(t)
    parts = [part.realise(t) for part in key.items] if isinstance(key, TupleValue) else [key]
    if not any(_is_open(part) for part in parts):
        return None
    if not all(_is_basic(part) for part in parts):
        raise GraphBreak("data-dependent-value", "a position that comes from a tensor beside one that is a tensor")
    taken = sum(not _is(part, None) and not _is(part, ...) for part in parts)
    if taken > dimensions:
        raise GraphBreak("operator-error", "too many indices for a tensor")
    places: list[tuple[int, Value]] = []
    rest: list[Value] = []
    dim = 0
    for part in parts:
        if _is(part, ...):
            dim += dimensions - taken
        elif _is_open(part):
            places.append((dim, part))
            part = ConstantValue(slice(None))
            dim += 1
        elif _is_slice(part) or _is(part, None):
            dim += 1
        rest.append(part)
    found: Value = tensor
    if len(places) < len(parts):
        found = t.recorder.record("call_function", getitem, [tensor, TupleValue(rest, tuple)], {})
    for dim, position in reversed(places):
        found = t.recorder.record("call_method", "select", [found, ConstantValue(dim), position], {})
    return found


def _is_open(part: Value) -> bool:
    return isinstance(part, SymbolicValue) and isinstance(part.symbol, torch.SymInt) and part.is_open()


def _is_basic(part: Value) -> bool:
    if _is_slice(part) or _is_open(part) or _is(part, None) or _is(part, ...):
        return True
    if isinstance(part, SymbolicValue):
        return isinstance(part.symbol, torch.SymInt)
    return part.is_constant() and type(part.constant()) is int


def _is_slice(part: Value) -> bool:
    return isinstance(part, SliceValue) or (part.is_constant() and isinstance(part.constant(), slice))


def _is(part: Value, constant: Any) -> bool:
    return part.is_constant() and part.constant() is constant
