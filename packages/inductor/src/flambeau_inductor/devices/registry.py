"""The devices that kernels are written for, by the type of ``torch.device``.

In: ``register(device)``, once for each backend. Out: ``device_of(place)``. A device that nobody registered has a record as well, by which
everything on it is left to the library.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager

import torch

from flambeau_runtime.registry import Registry

from ..config import Config
from .device import Device
from .facts import Facts
from .language import CPP

_DEVICES: Registry[str, Device] = Registry("device")


def register(device: Device) -> Device:
    """Have kernels written for ``device.type``. Raises ValueError for a type that has a backend."""
    return _DEVICES.register(device.type, device)


def registered(device: Device) -> AbstractContextManager[Device]:
    """``register`` for the length of a block."""
    return _DEVICES.registered(device.type, device)


def replaced(device: Device) -> AbstractContextManager[Device]:
    """``device`` in the place of the record that its type has, for the length of a block."""
    return _DEVICES.replaced(device.type, device)


def has_backend(place: torch.device) -> bool:
    """Whether kernels can be written for ``place``."""
    return _DEVICES.get(place.type) is not None


def device_of(place: torch.device) -> Device:
    """The record of ``place``."""
    return _DEVICES.get(place.type) or _without_backend(place.type)


def device_facts(place: torch.device) -> Facts:
    """What models of cost know of ``place``."""
    return device_of(place).facts(place)


def _no_kernels(config: Config) -> bool:
    return False


@functools.cache
def _without_backend(name: str) -> Device:
    return Device(type=name, language=lambda config: CPP, enabled=_no_kernels, dtypes=frozenset())
