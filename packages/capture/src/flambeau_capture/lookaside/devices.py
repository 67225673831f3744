"""`with torch.device(...)`: where the tensors are made that a program asks for without naming a device.

In: the traced program enters and leaves a device. Out: torch's own rule for such a mode, `device=` given to the calls that it covers, so
that the graph says itself where its tensors are. A device that the frame leaves entered is entered for real after the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

from ..graph.captured import CallFunction
from ..interp.signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from .registry import replaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def enter_or_leave_device(t: Tracer, device: torch.device, name: str) -> Value:
    """`__enter__` and `__exit__` of a device."""
    if name == "__enter__":
        t.devices.append(device)
        return ConstantValue(device)
    if not t.devices or t.devices[-1] != device:
        # Entered before the frame: the mode is in force for real and has to end for real.
        raise GraphBreak("unsupported-call", f"{device} is left, which was entered before")
    t.devices.pop()
    return ConstantValue(None)


@replaces(DeviceContext)
def make_context(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A mode of torch itself, which would reach into the tracing."""
    raise GraphBreak("unsupported-call", "making a DeviceContext")


def with_device(t: Tracer, target: Any, kwargs: Kwargs) -> Kwargs:
    """The keyword arguments of a call, with the device of the innermost context where torch would add it."""
    given = kwargs.get("device")
    if given is not None and not (given.is_constant() and given.constant() is None):
        return kwargs
    if target not in _device_constructors():
        return kwargs
    return {**kwargs, "device": ConstantValue(t.devices[-1] if t.devices else t.outer_device)}


def outer_device() -> torch.device | None:
    """The device in force where the frame begins, if it is not torch's own default."""
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def device_effects(t: Tracer) -> tuple[CallFunction, ...]:
    """Enter for real what the program has entered and not left."""
    return tuple(CallFunction(t.wrap_pinned(_enter), (ConstantValue(device),)) for device in t.devices)


def _enter(device: torch.device) -> None:
    device.__enter__()


@replaces(torch.get_default_device)
def default_device(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The device of the innermost context; a type of device without a number is asked for its current one."""
    if not t.devices:
        return t.fold(torch.get_default_device, args, kwargs)
    device = t.devices[-1]
    if device.index is None and device.type not in ("cpu", "meta"):
        raise GraphBreak("unsupported-call", "the default device depends on the current one")
    return ConstantValue(device)
