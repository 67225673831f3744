"""Numbers in the host's memory that meet tensors of another device: read on the host and handed to the kernel as arguments.

In: the arguments of a call whose result lives on such a device. Out: the same, with each one-element CPU tensor replaced by a number known
at run time. Eager's kernels do the same with such operands (an optimizer's step count and what is computed from it).
"""

from __future__ import annotations

from typing import Any

import torch

from ..devices import device_of, has_backend
from ..ir import scalar as sc
from ..ir.loops import ReadItem
from .builder import Builder
from .values import TensorValue


class HostScalars:
    """Reads each CPU number of one graph once."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._read: dict[int, tuple[TensorValue, TensorValue]] = {}

    def replace(self, args: list[Any], val: Any) -> list[Any]:
        """``args`` for a call with the fake result ``val``."""
        device = next((v.device for v in _tensors(val) if _takes_numbers(v.device)), None)
        if device is None:
            return args
        return [self._number(a, device) if isinstance(a, TensorValue) else a for a in args]

    def _number(self, value: TensorValue, device: torch.device) -> TensorValue:
        if not device_of(value.device).is_host or value.rank or value.dtype.is_complex or value.is_number:
            return value
        found = self._read.get(id(value))
        if found is None:
            b = self.builder
            name = f"{b.new_name()}_number"
            b.operations.append(ReadItem(name, None, b.ref(value), value.dtype, b.origins))
            element = sc.parameter(name, value.dtype)
            # The tensor is kept beside its number: another one must not get its id.
            found = self._read[id(value)] = (value, b.lazy((), value.dtype, device, lambda index: element))
        return found[1]


def _takes_numbers(place: torch.device) -> bool:
    """Whether kernels there would have to fetch a number that lies in the host's memory."""
    return has_backend(place) and not device_of(place).is_host


def _tensors(val: Any) -> list[torch.Tensor]:
    parts = val if isinstance(val, tuple | list) else (val,)
    return [part for part in parts if isinstance(part, torch.Tensor)]
