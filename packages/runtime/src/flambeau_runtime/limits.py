"""What a device does at most, measured: how fast it copies, how fast its library multiplies matrices.

In: a device. Out: `Limits`, measured once a process. What a kernel reaches is compared with these, not with a data sheet: its share of the limit is the
least time for its bytes and operations over the measured one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from attrs import frozen

from .bench import measure

_SECONDS = 0.03
#: Bytes of the tensor that is copied, and rows of the matrices: on a CPU, on an accelerator.
_COPIED = (64 << 20, 1 << 30)
_ROWS = (512, 4096)
_DTYPES = (torch.float32, torch.bfloat16)


@frozen
class Limits:
    """Of one device, with as many threads as torch uses.

    Attributes:
        name: of the device.
        bytes_per_second: of a copy of large tensors, reads and writes counted.
        flops_per_second: element type -> of a large product, in float32 as torch is set.
    """

    name: str
    bytes_per_second: float
    flops_per_second: Mapping[str, float]

    def seconds(self, moved: int, flops: int, *, half: bool = False) -> float:
        """The least time for so many bytes and operations; `half`: of 16-bit floats, which may go as fast as the fastest type."""
        rate = max(self.flops_per_second.values()) if half else self.flops_per_second["float32"]
        return max(moved / self.bytes_per_second, flops / rate)


def limits_of(device: torch.device) -> Limits:
    """The limits of a device; without an index, of the one of its type that is in use."""
    return _measured(device.type, device.index, torch.get_num_threads())


@functools.cache
def _measured(kind: str, index: int | None, threads: int) -> Limits:
    device = torch.device(kind) if index is None else torch.device(kind, index)
    is_accelerator = kind != "cpu"
    with torch.no_grad():
        source = torch.zeros(_COPIED[is_accelerator], dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        copied = measure(lambda: target.copy_(source), seconds=_SECONDS, device=kind).minimum
        rows = _ROWS[is_accelerator]
        rates = {}
        for dtype in _DTYPES:
            left = torch.ones(rows, rows, dtype=dtype, device=device)
            taken = measure(functools.partial(torch.mm, left, left), seconds=_SECONDS, device=kind).minimum
            rates[str(dtype).removeprefix("torch.")] = 2 * rows**3 / taken
    name = (
        _name(device)
        if is_accelerator
        else f"{torch.backends.cpu.get_cpu_capability()}, {threads} thread{'' if threads == 1 else 's'}"
    )
    return Limits(name, 2 * source.nbytes / copied, rates)


def _name(device: torch.device) -> str:
    module: Any = getattr(torch, device.type)
    return str(module.get_device_name())
