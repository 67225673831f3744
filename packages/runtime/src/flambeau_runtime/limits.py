"""What a device does at most, measured: how fast it copies, how fast it multiplies matrices.

In: a device. Out: `Limits`, measured once a process. What a kernel reaches is compared with these, not with a data sheet.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import frozen

#: Bytes of the tensor that is copied, and rows of the matrices: on a CPU, on an accelerator.
_COPIED = (64 << 20, 512 << 20)
_ROWS = (1024, 8192)


@frozen
class Limits:
    """`name` of the device; `bandwidth` of a copy in bytes/s, read and written counted; `flops`: dtype -> floating-point operations/s."""

    name: str
    bandwidth: float
    flops: Mapping[str, float]


def limits_of(device: torch.device) -> Limits:
    """The limits of the device of this type that is in use."""
    return _measured(device.type)


@functools.cache
def _measured(kind: str) -> Limits:
    device = torch.device(kind)
    is_host = kind == "cpu"
    with torch.no_grad():
        source = torch.zeros(_COPIED[not is_host], dtype=torch.int8, device=device)
        target = torch.empty_like(source)
        bandwidth = 2 * source.numel() / _best(functools.partial(target.copy_, source), device)
        del source, target
        rows = _ROWS[not is_host]
        flops = {}
        for dtype in (torch.float32,) if is_host else (torch.float32, torch.bfloat16):
            left = torch.ones(rows, rows, dtype=dtype, device=device)
            flops[str(dtype).removeprefix("torch.")] = (
                2 * rows**3 / _best(functools.partial(torch.mm, left, left), device)
            )
    name = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads" if is_host else _name(device)
    return Limits(name, bandwidth, flops)


def _name(device: torch.device) -> str:
    module: Any = getattr(torch, device.type)
    return str(module.get_device_name())


def _best(call: Callable[[], Any], device: torch.device) -> float:
    """The least seconds of some calls, the first left out."""
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        call()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        times.append(time.perf_counter() - begin)
    return min(times[1:])
