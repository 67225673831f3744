"""What an optimizer of torch's makes in its first step, made before that step is traced.

In: an optimizer whose `step` is about to be traced. Out: its state as the first step makes it before it computes, so that the graph of this
step serves the next ones too. Torch's own `_init_group` makes it, for the parameters that have a gradient by then: in the frame, which may
have computed it (`backward()`) or dropped it. SGD makes its momentum buffers of the first gradients; there they are zeros of which that step
makes the same.
"""

from __future__ import annotations

import types
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..class_names import class_module
from ..graph.histories import fills_its_memory
from ..library import inspect, math
from ..values.members import mro_lookup
from ..values.objects import ObjectValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..values.base import Tracer, Value

    Layouts = Mapping[torch.Tensor, tuple[int, ...] | None]

_BUFFER = "momentum_buffer"
_TOLD = frozenset(("_opt_called",))
"""Attributes that a step, or a scheduler around it, stores in an optimizer, and that make no difference to its state."""


def make_state(t: Tracer, optimizer: Value) -> None:
    """Let torch make the state, where neither what the frame has changed nor what it has read says that it is the step's to make."""
    real: Any = optimizer.real()
    if not isinstance(optimizer, ObjectValue) or not issubclass(type(real), torch.optim.Optimizer):
        return
    init, where = mro_lookup(type(real), "_init_group")
    is_torchs = isinstance(init, types.FunctionType) and class_module(where).startswith("torch.optim.")
    if not is_torchs or "_init_group" in vars(real) or id(real.state) in t.wrapper.wrapped:
        return
    if any(t.heap.size()) and not _is_as_it_was(t, optimizer, real):
        return
    layouts = _gradients_of_the_frame(t, real)
    if layouts is None:
        return
    lists = len(inspect.signature(init).parameters) - 2
    with _disable_current_modes(), torch.no_grad():
        try:
            with _held(layouts):
                for group in real.param_groups:
                    init(real, group, *([] for _ in range(lists)))
                if init is torch.optim.SGD._init_group:
                    _start_momentum(real)
        except Exception:
            return  # the step comes to it and raises the same


def _is_as_it_was(t: Tracer, optimizer: ObjectValue, real: Any) -> bool:
    """Whether the frame has changed nothing that the state is made from, gradients aside."""
    heap, wrapped = t.heap, t.wrapper.wrapped
    # A step that may be skipped makes no state where it is.
    if t.graph.region is not None or heap.globals or heap.members or heap.calls:
        return False
    tables = (real.state, real.param_groups, *real.param_groups, *(group["params"] for group in real.param_groups))
    if any(id(wrapped.get(id(table))) in heap.containers for table in (*tables, vars(real))):
        return False
    parameters = {id(wrapped.get(id(p))) for group in real.param_groups for p in group["params"]}
    for (_, name), (target, _, _) in heap.attributes.items():
        if (target is optimizer and name not in _TOLD) or (id(target) in parameters and name != "grad"):
            return False
    return True


def _gradients_of_the_frame(t: Tracer, real: Any) -> Layouts | None:
    """The layouts of the gradients that the frame has stored, None for one that it dropped; None where one is not known to be plain."""
    found: dict[torch.Tensor, tuple[int, ...] | None] = {}
    for group in real.param_groups:
        for parameter in group["params"]:
            target = t.wrapper.wrapped.get(id(parameter))
            stored = None if target is None else t.heap.attributes.get((id(target), "grad"))
            if stored is None:
                continue
            gradient = None if stored[1] is None else stored[1].realise(t)
            if gradient is None or (gradient.is_constant() and gradient.constant() is None):
                found[parameter] = None
            elif isinstance(gradient, TensorValue) and _is_plain(gradient.fake, parameter):
                found[parameter] = tuple(gradient.fake.stride())
            else:
                return None
    return found


def _is_plain(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether a gradient can be stood for by an empty tensor of its parameter's sizes."""
    return (
        gradient.layout is torch.strided
        and type(parameter) in (torch.Tensor, torch.nn.Parameter)
        and (gradient.dtype, gradient.device, gradient.ndim) == (parameter.dtype, parameter.device, parameter.ndim)
        and all(type(number) is int for number in (*gradient.shape, *gradient.stride()))
        and tuple(gradient.shape) == tuple(parameter.shape)
    )


@contextmanager
def _held(layouts: Layouts) -> Iterator[None]:
    """Have parameters hold what the frame gives them meanwhile: memory that nobody writes to or reads."""
    before = [(parameter, parameter.grad) for parameter in layouts]
    try:
        for parameter, strides in layouts.items():
            parameter.grad = (
                None
                if strides is None
                else torch.empty_strided(parameter.shape, strides, dtype=parameter.dtype, device=parameter.device)
            )
        yield
    finally:
        for parameter, gradient in before:
            parameter.grad = gradient


def _start_momentum(optimizer: torch.optim.SGD) -> None:
    """Buffers of negative zeros: `-0.0 * momentum + gradient` is the gradient, to its last bit, of which eager makes a copy."""
    for group in optimizer.param_groups:
        momentum, decay = group["momentum"], group["weight_decay"]
        has_momentum = type(momentum) is float and 0 < momentum < math.inf
        if not has_momentum or group["dampening"] != 0 or group["differentiable"]:
            continue
        # Where some parameters have a buffer and others none yet, eager takes them one by one, which rounds otherwise than a list of them.
        first = [p for p in group["params"] if p.grad is not None]
        if all(optimizer.state[p].get(_BUFFER) is None and _copies_as_it_lies(p, decay) for p in first):
            for parameter in first:
                optimizer.state[parameter][_BUFFER] = torch.full_like(parameter.grad, -0.0)


def _copies_as_it_lies(parameter: torch.Tensor, decay: Any) -> bool:
    """Whether a copy of the gradient, to which weight decay may have added the parameter, has the gradient's type and layout."""
    gradient = parameter.grad
    return (
        type(gradient) is torch.Tensor
        and gradient.layout is torch.strided
        and gradient.is_floating_point()
        and fills_its_memory(gradient)
        and (decay == 0 or (gradient.dtype, gradient.stride()) == (parameter.dtype, parameter.stride()))
    )
