"""`torch.autograd.Function` and activation checkpointing.

In: calls met while tracing. Out: an `autograd.Function` is one node that calls the user's own `forward`, and through autograd the user's
own `backward`, whenever the graph is run or differentiated; a checkpointed function is traced in place, its nodes marked with
`meta["checkpoint"]`, the number of the region.

Running the user's class from the graph is right as long as it does what it did now. So `forward` and `backward` are first traced like any
other function: that guards everything they read, and breaks the graph where they have effects or cannot be traced. What that trace
put in the graph is then taken away again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import checkpoint as checkpoints

from ..class_names import class_name
from ..interp.signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .registry import replaces
from .torch_state import set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_NO_SETUP: Any = torch.autograd.Function.setup_context


class Context:
    """Stands for the `ctx` of an `autograd.Function` while its methods are traced."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """As of a real context."""
        self.saved_tensors = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """As of a real context."""
        self.materialize_grads = value

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """As of a real context; the node's own run sees it."""


def function_apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Stands for `Function.apply`, which is written in Python or in C, as torch's version has it."""
    return cls.apply(*args, **kwargs)


_NATIVE_APPLY: Any = torch.autograd.Function.apply


@replaces(function_apply, getattr(_NATIVE_APPLY, "__func__", _NATIVE_APPLY))
def apply(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`Function.apply(...)`: one node."""
    cls, *inputs = args
    if not isinstance(cls, ClassValue) or kwargs:
        raise GraphBreak("autograd-function", "it is called with keyword arguments")
    for value in inputs:
        if not (isinstance(value, (TensorValue, SymbolicValue, FunctionValue)) or value.is_constant()):
            raise GraphBreak("autograd-function", f"{value.describe()} is an argument of {cls.describe()}")
        t.argument(value)
    before = t.heap.size()
    mark = t.graph.mark()
    outer, t.rehearsing = t.rehearsing, True
    try:
        _rehearse(t, cls, inputs)
    except TracedRaise:
        raise GraphBreak("autograd-function", f"{cls.describe()} raises an exception") from None
    finally:
        t.rehearsing = outer
        leftover = t.graph.rewind(mark)
    if leftover:
        raise GraphBreak("autograd-function", f"{cls.describe()} uses a tensor that is not among its arguments")
    if t.heap.size() != before:
        raise GraphBreak("autograd-function", f"{cls.describe()} changes objects outside of itself")
    return t.record("call_function", _callable_of(cls.object), inputs, {})


def _rehearse(t: Tracer, cls: ClassValue, inputs: Sequence[Value]) -> None:
    """Trace `forward` and, where a gradient may be asked for, `backward`."""
    needs = tuple(isinstance(value, TensorValue) and bool(value.fake.requires_grad) for value in inputs)
    enabled = torch.is_grad_enabled()
    context = t.call(t.wrap_pinned(Context), [t.from_python(needs)], {})
    set_grad_mode(t, False)
    try:
        if cls.object.setup_context is _NO_SETUP:
            outputs = t.call(t.get_attribute(cls, "forward"), [context, *inputs], {})
        else:
            outputs = t.call(t.get_attribute(cls, "forward"), inputs, {})
            t.call(t.get_attribute(cls, "setup_context"), [context, t.sequence(inputs, tuple), outputs], {})
        if enabled and any(needs):
            _rehearse_backward(t, cls, context, outputs)
    finally:
        set_grad_mode(t, enabled)


def _rehearse_backward(t: Tracer, cls: ClassValue, context: Value, outputs: Value) -> None:
    items = [outputs] if isinstance(outputs, TensorValue) else list(t.iterate_all(outputs))
    gradients: list[Value] = [
        t.record("call_function", torch.empty_like, [item], {})
        if isinstance(item, TensorValue)
        else ConstantValue(None)
        for item in items
    ]
    backward = getattr(cls.object.backward, "__wrapped__", None)
    if (
        backward is None
        and "backward" not in vars(cls.object)
        and cls.object.backward is torch.autograd.Function.backward
    ):
        backward = cls.object.vjp
    function = t.wrap_pinned(backward) if backward is not None else t.get_attribute(cls, "backward")
    t.call(function, [context, *gradients], {})


@lru_cache(maxsize=256)
def _callable_of(cls: Any) -> Any:
    """The target of the node: a local function, so that no cache takes it for another one of the same name, and of this module, since
    FX takes what is of torch's by its name."""

    def call(*args: Any) -> Any:
        return cls.apply(*args)

    call.__name__ = f"{class_name(cls)}_apply"
    return call


# activation checkpointing

_OWN_ARGUMENTS = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")


@replaces(checkpoints.checkpoint)
def checkpoint(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`checkpoint(function, *args)`: traced in place; the regions tell the partitioner what to compute again in the backward."""
    function, *rest = args
    own = {name: value for name, value in kwargs.items() if name in _OWN_ARGUMENTS}
    context = own.get("context_fn")
    if context is not None and context.real() is not checkpoints.noop_context_fn:
        raise GraphBreak("unsupported-call", "checkpoint() with a context_fn")
    others = {name: value for name, value in kwargs.items() if name not in own}
    reentrant = own.get("use_reentrant", ConstantValue(False))
    if others and reentrant.is_constant() and reentrant.constant() is not False:
        raise GraphBreak("unsupported-call", "checkpoint(use_reentrant=True) takes no other keyword arguments")
    with t.graph.checkpointed():
        return t.call(function, rest, others)
