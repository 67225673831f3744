"""What a device can do at most, measured once a process: how fast it copies, and how fast its library multiplies matrices.

In: a device. Out: `Limits`. An estimated time is the larger of bytes at the one rate and operations at the other; a kernel's share of the limit is that
time over the measured one.
"""

from __future__ import annotations

import functools

import torch
from attrs import frozen

from flambeau_runtime.bench import measure

_SECONDS = 0.03
_HALVES = (torch.float16, torch.bfloat16)


@frozen
class Limits:
    """Of one device, with as many threads as torch uses.

    Attributes:
        bytes_per_second: of a copy of large tensors, reads and writes counted.
        flops_per_second: of a large product in float32, as torch is set.
        half_flops_per_second: of one in bfloat16.
    """

    bytes_per_second: float
    flops_per_second: float
    half_flops_per_second: float

    def seconds(self, moved: int, flops: int, *, half: bool = False) -> float:
        """The least time for so many bytes and operations."""
        rate = self.half_flops_per_second if half else self.flops_per_second
        return max(moved / self.bytes_per_second, flops / rate)


def limits_of(device: torch.device) -> Limits:
    """The limits of a device."""
    return _measured(device.type, device.index, torch.get_num_threads())


@functools.cache
def _measured(kind: str, index: int | None, threads: int) -> Limits:
    device = torch.device(kind, index) if index is not None else torch.device(kind)
    large = kind == "cuda"
    with torch.no_grad(), torch.random.fork_rng([index or 0] if large else []):
        source = torch.ones(1 << (28 if large else 24), device=device)
        target = torch.empty_like(source)
        copied = measure(lambda: target.copy_(source), seconds=_SECONDS, device=kind).minimum
        size = 4096 if large else 512
        rates = []
        for dtype in (torch.float32, torch.bfloat16):
            left = torch.ones(size, size, dtype=dtype, device=device)
            taken = measure(functools.partial(torch.mm, left, left), seconds=_SECONDS, device=kind).minimum
            rates.append(2 * size**3 / taken)
    return Limits(2 * source.nbytes / copied, rates[0], max(rates))


def is_half(dtypes: tuple[torch.dtype, ...]) -> bool:
    """Whether a kernel works on 16-bit floats."""
    return any(dtype in _HALVES for dtype in dtypes)
