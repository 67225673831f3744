"""The kinds of device that run behind the host's back, and of which a machine may have several.

In: ``register(accelerator)``, once for each kind. Out: ``accelerator_of(device)``, None for the host's memory and for devices that nobody
registered: of these a program names the very device, and nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from attrs import frozen

from .registry import Registry

#: Where the host reads and writes; a number without dimensions there may stand in for one of an accelerator.
HOST_MEMORY = torch.device("cpu")


@frozen(kw_only=True)
class Accelerator:
    """``type`` is that of a ``torch.device``. ``is_available``: whether there is one here. ``start`` gets it ready for its first use in the
    process. ``current`` is the ordinal of the thread's current one, ``synchronize`` waits for all work queued there. ``identity`` names
    what decides the programs that are made for it. ``native``: the extension knows its streams and memory; programs on others are
    run by the executor in Python."""

    type: str
    is_available: Callable[[], bool]
    start: Callable[[], None]
    current: Callable[[], int]
    synchronize: Callable[[], None]
    identity: Callable[[], str]
    native: bool = False


_ACCELERATORS: Registry[str, Accelerator] = Registry("accelerator")


def register(accelerator: Accelerator) -> Accelerator:
    """Have programs on devices of this type name slots in place of ordinals. Raises ValueError for a type that is known."""
    return _ACCELERATORS.register(accelerator.type, accelerator)


def registered(accelerator: Accelerator) -> AbstractContextManager[Accelerator]:
    """``register`` for the length of a block."""
    return _ACCELERATORS.registered(accelerator.type, accelerator)


def accelerator_of(device: torch.device | None) -> Accelerator | None:
    """The record of a device's kind, or None."""
    return None if device is None else _ACCELERATORS.get(device.type)


def stands_in(wanted: torch.device, value: torch.Tensor) -> bool:
    """Whether ``value`` may come where a tensor on ``wanted`` was predicted: a library call may leave a number on the host."""
    return accelerator_of(wanted) is not None and value.device.type == HOST_MEMORY.type and value.dim() == 0


def known() -> tuple[Accelerator, ...]:
    """Every kind, in the order of registration."""
    return _ACCELERATORS.records()


def all_native() -> bool:
    """Whether the extension knows every kind."""
    return all(accelerator.native for accelerator in known())


# Functions of torch are asked for at each call: they may be replaced meanwhile.
def _cuda_is_available() -> bool:
    return torch.cuda.is_available()


def _start_cuda() -> None:
    torch.cuda.init()


def _current_cuda() -> int:
    return torch.cuda.current_device()


def _synchronize_cuda() -> None:
    torch.cuda.synchronize()


def _identity_of_cuda() -> str:
    """Its kernels' tiles, its attention and how its random numbers are dealt out follow from these."""
    if not torch.cuda.is_available():
        return "none"
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return f"{properties.name} {properties.major}.{properties.minor} {properties.multi_processor_count}"


CUDA = register(
    Accelerator(
        type="cuda",
        is_available=_cuda_is_available,
        start=_start_cuda,
        current=_current_cuda,
        synchronize=_synchronize_cuda,
        identity=_identity_of_cuda,
        native=True,
    )
)
