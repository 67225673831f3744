"""`torch.autograd.Function`.

In: calls met while tracing. Out: an `autograd.Function` is one node that calls the user's own `forward`, and through autograd the user's
own `backward`, whenever the graph is run or differentiated.

Running the user's class from the graph is right as long as it does what it did now. So `forward` and `backward` are first traced like any
other function: that guards everything they read, and breaks the graph where they have effects or cannot be traced. What that trace
put in the graph is then taken away again.

A call that cannot be a node, but of which no gradient can be asked, is its `forward`, traced like any other function.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.autograd_function import VmapInfo

from ..class_names import class_name
from ..graph.bodies import varies
from ..interp.attributes import function_apply
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue
from ..values.sequences import TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .forward_mode import in_a_level
from .torch_state import set_grad_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_FUNCTION: Any = torch.autograd.Function
_NO_SETUP: Any = torch.autograd.Function.setup_context


class Context:
    """Stands for the `ctx` of an `autograd.Function` while its methods are traced."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.dirtied = False
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.saved_for_forward: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """As of a real context."""
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """As of a real context."""
        self.saved_for_forward = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """As of a real context."""
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Any) -> None:
        """As of a real context; the node's own run sees it."""
        self.dirtied = True

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """As of a real context; the node's own run sees it."""


_NATIVE_APPLY: Any = torch.autograd.Function.apply


@replaces(function_apply, getattr(_NATIVE_APPLY, "__func__", _NATIVE_APPLY))
def apply(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`Function.apply(...)`: one node."""
    cls, *inputs = args
    if not isinstance(cls, ClassValue) or kwargs:
        raise GraphBreak("autograd-function", "it is called with keyword arguments")
    needs = tuple(isinstance(value, TensorValue) and bool(value.fake.requires_grad) for value in inputs)
    is_forward_alone = not (torch.is_grad_enabled() and any(needs)) and not any(
        body.transform for body in t.graph.bodies
    )
    refused = next(filter(None, (_refused(t, value) for value in inputs)), None)
    if refused is not None:
        if is_forward_alone:
            return _forward_alone(t, cls, inputs, needs)
        raise GraphBreak("autograd-function", f"{refused.describe()} is an argument of {cls.describe()}")
    for value in inputs:
        t.recorder.argument(value)
    before = t.heap.size()
    mark = t.graph.mark()
    outer, t.wrapper.rehearsing = t.wrapper.rehearsing, True
    try:
        with t.heap.watching(inputs):
            told_absent = _rehearse(t, cls, inputs, needs)
    except TracedRaise:
        raise GraphBreak("autograd-function", f"{cls.describe()} raises an exception") from None
    finally:
        t.wrapper.rehearsing = outer
        leftover = t.graph.rewind(mark)
    if t.heap.size() != before:
        raise GraphBreak("autograd-function", f"{cls.describe()} changes objects outside of itself")
    if leftover:
        if is_forward_alone:
            return _forward_alone(t, cls, inputs, needs)
        raise GraphBreak("autograd-function", f"{cls.describe()} uses a tensor that is not among its arguments")
    t.heap.keep_as_is(inputs)
    return t.recorder.record("call_function", _callable_of(cls.object, told_absent), inputs, {})


def _refused(t: Tracer, value: Value) -> Value | None:
    """What cannot be given to a node: all but tensors, numbers and constants, and containers of these that the frame makes. What else it
    is given others may change before the backward."""
    if isinstance(value, (TensorValue, SymbolicValue, FunctionValue)) or value.is_constant():
        return None
    if value.source is None and value.python_type() in (list, tuple, dict):
        is_dict = value.python_type() is dict
        parts = [part for _, part in t.operators.mapping_items(value)] if is_dict else t.operators.iterate_all(value)
        return next(filter(None, (_refused(t, part.realise(t)) for part in parts)), None)
    return value


def _forward_alone(t: Tracer, cls: ClassValue, inputs: Sequence[Value], needs: tuple[bool, ...]) -> Value:
    """The call where no gradient can be asked for: an argument that is returned as it is becomes a view of itself, as of any other call."""
    enabled = torch.is_grad_enabled()
    set_grad_mode(t, False)
    try:
        context, outputs = _run_forward(t, cls, inputs, needs)
    finally:
        set_grad_mode(t, enabled)
    if t.attributes.get_attribute(context, "dirtied").constant():
        raise GraphBreak("autograd-function", f"{cls.describe()} writes to its arguments")
    outputs = outputs.realise(t)
    if isinstance(outputs, TensorValue):
        return _viewed(t, outputs, inputs)
    if outputs.python_type() is tuple:
        return t.wrapper.sequence(
            [_viewed(t, item.realise(t), inputs) for item in t.operators.iterate_all(outputs)], tuple
        )
    return outputs


def _viewed(t: Tracer, output: Value, inputs: Sequence[Value]) -> Value:
    if not isinstance(output, TensorValue) or all(output is not value for value in inputs):
        return output
    if output.fake.requires_grad:
        return t.recorder.record("call_method", "detach", [output], {})
    return t.recorder.record("call_method", "view_as", [output, output], {})


def _as_made(argument: Any) -> Any:
    """The argument with the program's own kinds of containers: those of a graph's nodes refuse changes, and to be differentiated."""
    if isinstance(argument, list | tuple):
        items = map(_as_made, argument)
        return list(items) if isinstance(argument, list) else tuple(items)
    if isinstance(argument, dict):
        return {key: _as_made(item) for key, item in argument.items()}
    return argument


def _run_forward(t: Tracer, cls: ClassValue, inputs: Sequence[Value], needs: tuple[bool, ...]) -> tuple[Value, Value]:
    """Trace `forward` and, where the class has one, `setup_context`: the context and the outputs."""
    context = t.caller.call(t.wrapper.wrap_pinned(Context), [t.wrapper.from_python(needs)], {})
    forward = t.attributes.get_attribute(cls, "forward")
    if cls.object.setup_context is _NO_SETUP:
        return context, t.caller.call(forward, [context, *inputs], {})
    outputs = t.caller.call(forward, inputs, {})
    setup = t.attributes.get_attribute(cls, "setup_context")
    t.caller.call(setup, [context, t.wrapper.sequence(inputs, tuple), outputs], {})
    return context, outputs


def _rehearse(t: Tracer, cls: ClassValue, inputs: Sequence[Value], needs: tuple[bool, ...]) -> bool:
    """Trace `forward` and, where a gradient may be asked for, `backward`. Whether that is told which gradients are absent."""
    enabled = torch.is_grad_enabled()
    set_grad_mode(t, False)
    try:
        context, outputs = _run_forward(t, cls, inputs, needs)
        if enabled and any(needs):
            _rehearse_backward(t, cls, context, outputs)
        _rehearse_rules(t, cls, context, inputs)
        materializes = t.attributes.get_attribute(context, "materialize_grads")
        return not (materializes.is_constant() and materializes.constant())
    finally:
        set_grad_mode(t, enabled)


def _rehearse_backward(t: Tracer, cls: ClassValue, context: Value, outputs: Value) -> None:
    items = [outputs] if isinstance(outputs, TensorValue) else list(t.operators.iterate_all(outputs))
    gradients: list[Value] = [
        t.recorder.record("call_function", torch.empty_like, [item], {})
        if isinstance(item, TensorValue)
        else ConstantValue(None)
        for item in items
    ]
    # Asked of the class in any case: another one that is put there later is noticed.
    function = t.attributes.get_attribute(cls, "backward").realise(t)
    inner = getattr(cls.object.backward, "__wrapped__", None)
    if inner is not None:
        function = t.wrapper.wrap_pinned(inner)
    elif "backward" not in vars(cls.object) and cls.object.backward is torch.autograd.Function.backward:
        function = t.attributes.get_attribute(cls, "vjp")
    t.caller.call(function, [context, *gradients], {})


def _rehearse_rules(t: Tracer, cls: ClassValue, context: Value, inputs: Sequence[Value]) -> None:
    """Trace what transforms of `torch.func`, or a level of forward-mode differentiation, around the call ask of the class: its `jvp` and its `vmap`."""
    around = [body for body in reversed(t.graph.bodies) if body.transform is not None]
    pushes = in_a_level() or any(body.transform in ("jvp", "jacfwd") for body in around)
    if pushes and cls.object.jvp is not _FUNCTION.jvp:
        context.set_attribute(t, "saved_tensors", t.attributes.get_attribute(context, "saved_for_forward"))
        t.caller.call(t.attributes.get_attribute(cls, "jvp"), [context, *inputs], {})
    batching = next((body for body in around if body.transform == "vmap"), None)
    varying = [isinstance(value, TensorValue) and varies(t.graph.bodies, t.recorder.node_of(value)) for value in inputs]
    if batching is None or cls.object.vmap is _FUNCTION.vmap or not any(varying):
        return
    whole = [
        _as_batch(t, value, batching.batch) if varies else value for value, varies in zip(inputs, varying, strict=True)
    ]
    info = TupleValue([batching.batch, ConstantValue("error")], VmapInfo)
    dims = t.wrapper.from_python(tuple(0 if varies else None for varies in varying))
    # What it calls is no longer within that transform.
    batching.transform = None
    try:
        t.caller.call(t.attributes.get_attribute(cls, "vmap"), [info, dims, *whole], {})
    finally:
        batching.transform = "vmap"


def _as_batch(t: Tracer, value: Value, batch: Value) -> Value:
    assert isinstance(value, TensorValue)
    whole = t.recorder.record("call_method", "unsqueeze", [value, ConstantValue(0)], {})
    sizes = [batch, *(ConstantValue(-1) for _ in range(value.fake.ndim))]
    return t.recorder.record("call_method", "expand", [whole, *sizes], {})


@lru_cache(maxsize=256)
def _callable_of(cls: Any, told_absent: bool) -> Any:
    """The target of the node: a local function, so that no cache takes it for another one of the same name, and of this module, since
    FX takes what is of torch's by its name. Its attribute of the same name is read by what differentiates the graph."""

    def call(*args: Any) -> Any:
        return cls.apply(*map(_as_made, args))

    call.__name__ = f"{class_name(cls)}_apply"
    made: Any = call
    made.told_absent = told_absent
    return made
