"""The devices that kernels are written for, by the type of ``torch.device``.

In: ``register(device)``, once for each backend. Out: ``device_of(place)``. A device that nobody registered has a record as well, by which
everything on it is left to the library.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..config import Config
from .device import Device
from .facts import Facts
from .language import CPP

_DEVICES: dict[str, Device] = {}


def register(device: Device) -> Device:
    """Have kernels written for ``device.type``. Raises ValueError for a type that has a backend."""
    if device.type in _DEVICES:
        raise ValueError(f"device {device.type} is registered twice")
    _DEVICES[device.type] = device
    return device


@contextmanager
def registered(device: Device) -> Iterator[Device]:
    """``register`` for the length of a block."""
    register(device)
    try:
        yield device
    finally:
        del _DEVICES[device.type]


def has_backend(place: torch.device) -> bool:
    """Whether kernels can be written for ``place``."""
    return place.type in _DEVICES


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
