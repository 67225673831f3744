"""`int()`, `float()` and `bool()` of a tensor.

In: the tensor. Out: the symbolic number that the graph reads out of it, as `Tensor.item()`, after what the conversion computes. What the graph cannot
hold (a float whose integer part needs more than 64 bits) is assumed not to come: plain Python runs the frame then.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from ..graph.quiet import hearing
from ..library import operator
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.read_out import item, number_in, refuse
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .messages import tell_of_operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..values.base import Tracer

_HELD = 2.0**62
"""Floats below have an integer part in 64 bits."""


def int_of(t: Tracer, tensor: TensorValue) -> Value:
    """`int(tensor)`."""
    if tensor.number is not None:
        t.members.refuse_patched(tensor, "__int__")
        return ConstantValue(int(tensor.number))
    refuse(t, tensor, "__int__")
    _tell(t, tensor, int)
    dtype = tensor.fake.dtype
    if dtype.is_floating_point:
        size = t.recorder.record("call_method", "abs", [tensor], {})
        assume(t, t.recorder.record("call_function", operator.lt, [size, ConstantValue(_HELD)], {}))
    if dtype.is_floating_point or dtype is torch.bool:
        return number_in(t, _converted(t, tensor, torch.int64))
    return item(t, tensor)


def float_of(t: Tracer, tensor: TensorValue) -> Value:
    """`float(tensor)`."""
    refuse(t, tensor, "__float__")
    _tell(t, tensor, float)
    if tensor.fake.dtype.is_floating_point:
        return item(t, tensor)
    return number_in(t, _converted(t, tensor, torch.float64))


def bool_of(t: Tracer, tensor: TensorValue) -> Value:
    """`bool(tensor)`."""
    refuse(t, tensor, "__bool__")
    _tell(t, tensor, bool)
    if tensor.fake.dtype is torch.bool:
        return item(t, tensor)
    return number_in(t, t.recorder.record("call_function", operator.ne, [tensor, ConstantValue(0)], {}))


def assume(t: Tracer, condition: Value) -> None:
    """Assume that a tensor of one truth value is true."""
    found = number_in(t, _converted(t, condition, torch.int64))
    holds = t.arithmetic.symbolic(operator.eq, [found, ConstantValue(1)])
    if not isinstance(holds, SymbolicValue):
        raise GraphBreak("data-dependent-value", "a number that comes from a tensor is needed")
    t.graph.check(holds.node, holds.symbol)


def _converted(t: Tracer, tensor: Value, dtype: torch.dtype) -> Value:
    return t.recorder.record("call_method", "to", [tensor, t.wrapper.from_python(dtype)], {})


def _tell(t: Tracer, tensor: TensorValue, convert: Callable[[Any], Any]) -> None:
    """Torch warns, once in a process, where a tensor that requires grad becomes a number."""
    if not tensor.fake.requires_grad:
        return
    leaf = torch.zeros((), requires_grad=True)

    def again(*, each_time: bool) -> None:
        root = sys._getframe().f_code
        with hearing(root, each_time=each_time) as t.graph.heard:
            convert(leaf)

    again(each_time=True)
    tell_of_operation(t, again)


def as_truth(t: Tracer, value: Value) -> SymbolicValue | None:
    """The truth of what is read out of a tensor, as a number of the graph; None where it is known, or cannot be one."""
    value = value.realise(t)
    if isinstance(value, TensorValue):
        if not t.config.capture_scalar_outputs or value.fake.is_complex():
            return None
        value = bool_of(t, value)
    if not isinstance(value, SymbolicValue) or not value.is_open():
        return None
    if not isinstance(value.symbol, torch.SymBool):
        value = t.arithmetic.symbolic(operator.ne, [value, ConstantValue(0)])
    return value if isinstance(value, SymbolicValue) and isinstance(value.symbol, torch.SymBool) else None
