"""The default device: what a program asks of it, the one that is in force before the trace, and those that the frame leaves entered.

In: a tracer. Out: `outer_device`, and `device_effects`, which enter for real, after the graph, what was not left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils._device import DeviceContext

from ..captured import CallFunction
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@replaces(DeviceContext)
def make_context(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A mode of torch itself, which would reach into the tracing."""
    raise GraphBreak("unsupported-call", "making a DeviceContext")


def outer_device() -> torch.device | None:
    """The device in force where the frame begins, if it is not torch's own default."""
    modes = [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def device_effects(t: Tracer) -> tuple[CallFunction, ...]:
    """Enter for real what the program has entered and not left."""
    return tuple(CallFunction(t.wrapper.wrap_pinned(_enter), (ConstantValue(device),)) for device in t.devices.entered)


def _enter(device: torch.device) -> None:
    device.__enter__()


@replaces(torch.get_default_device)
def default_device(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The device of the innermost context; a type of device without a number is asked for its current one."""
    if not t.devices.entered:
        return t.folder.fold(torch.get_default_device, args, kwargs)
    device = t.devices.entered[-1]
    if device.index is None and device.type not in ("cpu", "meta"):
        raise GraphBreak("unsupported-call", "the default device depends on the current one")
    return ConstantValue(device)
