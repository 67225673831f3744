"""What the models of cost know of the processor that a kernel runs on.

In: numbers from a driver or a data sheet. Out: ``Facts``. The same facts always give the same kernels.
"""

from __future__ import annotations

from attrs import field, frozen

from .tuning import Tuning

#: What one program of eight warps takes in, sixteen bytes a thread at a time, and how many such programs a multiprocessor runs
#: at once.
_PROGRAM_RATE = 25e9
_RESIDENT = 4
#: A launch and the idle ends of a kernel.
LAUNCH_SECONDS = 3e-6


@frozen
class Facts:
    """``multiprocessors``; ``threads`` and ``registers`` of each; ``cache`` bytes of L2; ``bandwidth`` of a copy in bytes/s;
    ``shared`` bytes of memory that one program can have for itself; ``half_products`` and ``tf32_products``: floating-point operations a second
    of the library's large matrix products of 16-bit numbers and of float32 rounded to TF32 (measured on the H200, else four fifths of the published rate), ``eighth_products``
    those of float8, 0.0 where it has no instructions for them. ``tuning``: where one
    way to write a kernel overtakes another."""

    name: str
    multiprocessors: int
    threads: int
    registers: int
    cache: int
    bandwidth: float
    shared: int = 227 << 10
    half_products: float = 7.8e14
    tf32_products: float = 3.9e14
    eighth_products: float = 0.0
    tuning: Tuning = field(factory=Tuning)

    def seconds(self, total: float, programs: int) -> float:
        """About how long ``programs`` equal programs take to read ``total`` bytes."""
        waves = -(-programs // (self.multiprocessors * _RESIDENT))
        alone = waves * total / max(programs, 1) / _PROGRAM_RATE
        return max(total / self.bandwidth, alone)


H200 = Facts("H200", 132, 2048, 65536, 60 << 20, 4.3e12, eighth_products=1.3e15, tuning=Tuning(finished_seconds=7.5e-6))
