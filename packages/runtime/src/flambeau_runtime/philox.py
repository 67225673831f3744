"""The operator that hands a piece of a CUDA generator's stream to a generated kernel.

In: nothing. Out: ``state_op()``, the overload ``flambeau::philox_state(Device device, int increment, int threads)`` which gives
``(seed, offset, base)`` and moves the device's default generator on by ``increment``. The native one also works while a CUDA graph
is captured: ``seed`` and ``offset`` are then device addresses and ``base`` (else -1) is added to the offset read there.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import torch

from .errors import ExtensionError
from .extension import extension

#: Blocks of eager's random kernels have this many threads.
BLOCK = 256
_SCHEMA = "philox_state(Device device, int increment, int threads) -> (int, int, int)"


def resident_threads(device: torch.device) -> int:
    """How many threads ``device`` keeps resident in blocks of ``BLOCK``: the largest grid of eager's random kernels."""
    properties = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK) * BLOCK)


@functools.cache
def state_op() -> Any:
    """The overload, the extension's or (where that is missing) one in Python, which does not work under capture."""
    with contextlib.suppress(ExtensionError):
        extension()
    if not hasattr(torch.ops.flambeau, "philox_state"):
        library = torch.library.Library("flambeau", "FRAGMENT")
        library.define(_SCHEMA, tags=(torch.Tag.nondeterministic_seeded,))
        library.impl("philox_state", _philox_state, "CompositeExplicitAutograd")
        _LIBRARIES.append(library)
    return torch.ops.flambeau.philox_state.default


#: Libraries defined here, which live as long as the process.
_LIBRARIES: list[torch.library.Library] = []


def _philox_state(device: torch.device, increment: int, threads: int) -> tuple[int, int, int]:
    found = resident_threads(device)
    if found != threads:
        raise RuntimeError(
            f"this program draws random numbers as a GPU with {threads} resident threads does; {device} has {found}: "
            "compile it again on this device"
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    generator = torch.cuda.default_generators[index]
    offset = generator.get_offset()
    generator.set_offset(offset + increment)
    return _signed(generator.initial_seed()), offset, -1


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
