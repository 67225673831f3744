"""`with torch.device(...)`: where the tensors are made that a program asks for without naming a device.

In: the traced program enters and leaves a device. Out: torch's own rule for such a mode, `device=` given to the calls that it covers, so
that the graph says itself where its tensors are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._device import _device_constructors

from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from ..values.base import Tracer


class Devices(Part):
    """Devices that the program has entered, and the one that was in force before."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        self.entered: list[torch.device] = []
        self.outer: torch.device | None = None

    def enter_or_leave(self, device: torch.device, name: str) -> Value:
        """`__enter__` and `__exit__` of a device."""
        if self.t.overrides.modes:
            raise GraphBreak("unsupported-call", f"{device} is entered or left inside of a mode of __torch_function__")
        if name == "__enter__":
            self.entered.append(device)
            return ConstantValue(device)
        if not self.entered or self.entered[-1] != device:
            # Entered before the frame: the mode is in force for real and has to end for real.
            raise GraphBreak("unsupported-call", f"{device} is left, which was entered before")
        self.entered.pop()
        return ConstantValue(None)

    def with_device(self, target: Any, kwargs: Mapping[str, Value]) -> Mapping[str, Value]:
        """The keyword arguments of a call, with the device of the innermost context where torch would add it."""
        if not self.entered and self.outer is None:
            return kwargs
        given = kwargs.get("device")
        if given is not None and not (given.is_constant() and given.constant() is None):
            return kwargs
        if target not in _device_constructors():
            return kwargs
        return {**kwargs, "device": ConstantValue(self.entered[-1] if self.entered else self.outer)}
