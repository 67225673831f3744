"""What the block-size model knows of a GPU.

In: the device a kernel runs on. Out: a ``Device``: read from the driver where there is one, else the H200's facts, for which
kernels are cross-compiled. The same device always gives the same kernels.
"""

from __future__ import annotations

import functools

import torch
from attrs import frozen

#: What one program of eight warps takes in, sixteen bytes a thread at a time, and how many such programs a multiprocessor runs
#: at once.
_PROGRAM_RATE = 25e9
_RESIDENT = 4
#: A launch and the idle ends of a kernel.
LAUNCH_SECONDS = 3e-6


@frozen
class Device:
    """``multiprocessors``; ``threads`` and ``registers`` of each; ``cache`` bytes of L2; ``bandwidth`` of a copy in bytes/s;
    ``shared`` bytes of memory that one program can have for itself; ``half_products`` and ``tf32_products``: floating-point operations a second
    of the library's large matrix products of 16-bit numbers and of float32 rounded to TF32 (four fifths of the published rate; measured on the H200)."""

    name: str
    multiprocessors: int
    threads: int
    registers: int
    cache: int
    bandwidth: float
    shared: int = 227 << 10
    half_products: float = 7.8e14
    tf32_products: float = 3.9e14

    def seconds(self, total: float, programs: int) -> float:
        """About how long ``programs`` equal programs take to read ``total`` bytes."""
        waves = -(-programs // (self.multiprocessors * _RESIDENT))
        alone = waves * total / max(programs, 1) / _PROGRAM_RATE
        return max(total / self.bandwidth, alone)


H200 = Device("H200", 132, 2048, 65536, 60 << 20, 4.3e12)
#: Compute capability -> facts that the driver does not tell, or tells only where there is a GPU.
_KNOWN = {
    (8, 0): Device("A100", 108, 2048, 65536, 40 << 20, 1.7e12, 163 << 10, 2.5e14, 1.25e14),
    (8, 6): Device("A10", 72, 1536, 65536, 6 << 20, 0.5e12, 99 << 10, 1e14, 5e13),
    (8, 9): Device("L40S", 142, 1536, 65536, 96 << 20, 0.75e12, 99 << 10, 2.9e14, 1.45e14),
    (9, 0): H200,
    (10, 0): Device("B200", 148, 2048, 65536, 126 << 20, 6.5e12, 227 << 10, 1.8e15, 9e14),
    (12, 0): Device("RTX PRO 6000", 188, 1536, 65536, 128 << 20, 1.6e12, 99 << 10, 4e14, 2e14),
}


def device_facts(device: torch.device) -> Device:
    """The facts of ``device``; those of the H200 for any other than a CUDA device that is there."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return H200
    return _present(device.index if device.index is not None else torch.cuda.current_device())


@functools.cache
def _present(index: int) -> Device:
    found = torch.cuda.get_device_properties(index)
    known = _KNOWN.get((found.major, found.minor)) or _KNOWN.get((found.major, 0), H200)
    return Device(
        found.name,
        found.multi_processor_count,
        getattr(found, "max_threads_per_multi_processor", known.threads),
        getattr(found, "regs_per_multiprocessor", known.registers),
        getattr(found, "L2_cache_size", known.cache) or known.cache,
        known.bandwidth,
        getattr(found, "shared_memory_per_block_optin", known.shared),
        known.half_products,
        known.tf32_products,
    )
