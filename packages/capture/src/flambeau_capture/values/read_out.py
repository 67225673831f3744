"""Python numbers that a program reads out of tensors.

In: a tensor, asked for `item()` or `tolist()`. Out: symbolic numbers that no example stands for; the graph computes with them, and what they are
decides nothing. One that an argument of the frame on the CPU holds has a formula all the same: where the program branches on it, a guard on
Python's own number does. What turns tensors into numbers of another kind is in `interp/conversions.py`. (A tensor here is a `TensorValue`,
whose module imports this one.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..signals import GraphBreak
from ..sources.source import Attribute, CallResult
from .base import MISSING, Value
from .sequences import ListValue
from .symbolic import SymbolicValue, formula_of_input

if TYPE_CHECKING:
    from .base import Tracer

_MOST_ITEMS = 64
"""Elements of a tensor that becomes a list: each is a number of the graph."""


def item(t: Tracer, tensor: Any) -> Value:
    """`tensor.item()`."""
    refuse(t, tensor, "item")
    made = number_in(t, tensor)
    real, source = tensor.tensor, tensor.source
    if isinstance(made, SymbolicValue) and real is not MISSING and source is not None and _is_as_given(t, tensor):
        made.formula = formula_of_input(CallResult(Attribute(source, "item")), real.item())
    return made


def to_list(t: Tracer, tensor: Any) -> Value:
    """`tensor.tolist()`."""
    sizes = tensor.fake.shape
    if not sizes:
        refuse(t, tensor, "tolist")
        return item(t, tensor)
    if any(isinstance(size, torch.SymInt) for size in sizes) or sizes.numel() > _MOST_ITEMS:
        raise GraphBreak("data-dependent-value", f"Tensor.tolist() of {tensor.describe()}")
    refuse(t, tensor, "tolist", one=False)
    if tensor.fake.device.type != "cpu":  # one copy, not one for each
        return _listed(t, t.recorder.record("call_method", "cpu", [tensor], {}))
    return _listed(t, tensor)


def _listed(t: Tracer, tensor: Any) -> Value:
    if not tensor.fake.ndim:
        return number_in(t, tensor)
    parts = t.operators.iterate_all(tensor) if tensor.fake.shape[0] else ()
    return ListValue([_listed(t, part) for part in parts])


def number_in(t: Tracer, tensor: Value) -> Value:
    """The one number that a tensor holds, in the graph."""
    return t.recorder.record("call_method", "item", [tensor], {})


def refuse(t: Tracer, tensor: Any, name: str, *, one: bool = True) -> None:
    """Break where the graph is to hold no numbers of tensors, or cannot; `one`: the tensor has to hold one number."""
    t.members.refuse_patched(tensor, name)
    fake = tensor.fake
    held = fake.layout is torch.strided and not (
        fake.dtype.is_complex or fake.is_quantized or fake.dtype is torch.uint64
    )
    if one and any(isinstance(size, torch.SymInt) or size != 1 for size in fake.shape):
        held = False
    if not held or not t.config.capture_scalar_outputs:
        raise GraphBreak("data-dependent-value", f"Tensor.{name}() of {tensor.describe()}")


def _is_as_given(t: Tracer, tensor: Any) -> bool:
    """Whether the caller's tensor can be asked before the graph: nothing here has written to it."""
    return tensor.fake.device.type == "cpu" and not any(
        fake.is_inference() or fake._version for _, fake, _ in t.wrapper.tensor_inputs
    )
