"""How eager's CUDA kernels deal out a generator's stream: which thread's which draw an element of a result gets.

In: numbers of elements, dtypes, strides. Out: the generator's increment, and the (draw, thread, lane) of each element. Facts of
torch's kernels (Dropout.cu, DistributionTemplates.h): blocks of 256 threads, at most as many as the device keeps resident; each
thread has its own subsequence of Philox and draws four words at a time. A kernel either deals the four words to elements one grid
apart, or, where a thread handles several neighbours at once, to those. ``agrees`` asks eager itself, once per process and kind.
"""

from __future__ import annotations

import functools

import torch
from attrs import frozen
from torch.utils._python_dispatch import _disable_current_modes

from flambeau_runtime.philox import BLOCK, resident_threads

from ..expr import Expr, Int
from ..ops.table import scalar_op

#: Words of one draw.
WORDS = 4
#: Largest extent in bytes that eager's kernels index with 32 bits; beyond it they split the tensor.
MOST_BYTES = 2**31 - 1


@frozen
class Deal:
    """``numel`` elements dealt to a grid of ``threads`` in all, ``vector`` neighbours to a thread at a time (1: one grid apart)."""

    numel: int
    threads: int
    vector: int = 1

    @classmethod
    def of(cls, numel: int, resident: int, vector: int = 1) -> Deal:
        """The deal on a device that keeps ``resident`` threads at once."""
        return cls(numel, min(resident, -(-numel // BLOCK) * BLOCK), vector)

    @property
    def increment(self) -> int:
        """How far the generator's offset moves, whatever the vector width."""
        return ((self.numel - 1) // (self.threads * WORDS) + 1) * WORDS

    def place(self, element: Expr) -> tuple[Expr, Expr, Expr]:
        """(draw, thread, lane) of the element numbered ``element``."""
        threads = Int(self.threads)
        if self.vector == 1:
            round_, rest = element // (threads * WORDS), element % (threads * WORDS)
            return round_, rest % threads, rest // threads
        group, inside = element // Int(self.vector), element % Int(self.vector)
        draws = max(self.vector // WORDS, 1)
        return group // threads * draws + inside // WORDS, group % threads, inside % WORDS

    def place_all(self, elements: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """``place`` for a tensor of element numbers."""
        if self.vector == 1:
            rest = elements % (self.threads * WORDS)
            return elements // (self.threads * WORDS), rest % self.threads, rest // self.threads
        group, inside = elements // self.vector, elements % self.vector
        draws = max(self.vector // WORDS, 1)
        return group // self.threads * draws + inside // WORDS, group % self.threads, inside % WORDS


def vector_width(numel: int, itemsize: int, byte_offset: int, cuda: tuple[int, int]) -> int:
    """How many neighbours a thread of eager's dropout handles at once on dense memory that starts ``byte_offset`` past an allocation."""
    width = next(v for v in (8, 4, 2, 1) if byte_offset % (v * itemsize) == 0)
    width = min(width, 16 // itemsize if cuda >= (12, 8) else 4)
    while width > 1 and numel % width:
        width //= 2
    return width


def cuda_version() -> tuple[int, int]:
    """The CUDA version torch was built with, (0, 0) for none."""
    major, _, minor = (torch.version.cuda or "0.0").partition(".")
    return int(major), int(minor.partition(".")[0] or 0)


def uniform(deal: Deal, seed: int, offset: int, elements: torch.Tensor) -> torch.Tensor:
    """The floats in (0, 1] of the elements with these numbers, computed with tensor ops: float32, of their shape."""
    draw, thread, lane = deal.place_all(elements)
    known = [torch.tensor(v, device=elements.device) for v in (_signed(seed), offset, -1)]
    result: torch.Tensor = scalar_op("philox_uniform").reference(*known, draw, thread, lane, dtype=torch.float32)
    return result


def dropout_keeps(uniforms: torch.Tensor, p: float, dtype: torch.dtype) -> torch.Tensor:
    """Which elements eager's dropout keeps, given the floats they drew."""
    return uniforms < threshold(1.0 - p, dtype)


def threshold(probability: float, dtype: torch.dtype) -> float:
    """``probability`` in the type in which eager compares draws for tensors of ``dtype``."""
    return probability if dtype is torch.float64 else float(torch.tensor(probability, dtype=torch.float32))


def device_threads(device: torch.device) -> int | None:
    """Resident threads of ``device``, None where there is no such device here."""
    return resident_threads(device) if torch.cuda.is_available() else None


def agrees(device: torch.device, kind: str, dtype: torch.dtype, vector: int) -> bool:
    """True when eager's own kernel ("dropout" or "uniform") deals as ``Deal`` says; the device is asked once per process.

    While a CUDA graph is captured nobody can ask: the answer is no then, and is not remembered.
    """
    if torch.cuda.is_current_stream_capturing():
        return False
    return _ask(device, kind, dtype, vector)


_SEED, _OFFSET = 0x9EED_0000_0000_0007, 2**34


@functools.cache
def _ask(device: torch.device, kind: str, dtype: torch.dtype, vector: int) -> bool:
    """Draw over more than two rounds of the largest grid and compare around its seams; the generator is put back."""
    resident = resident_threads(device)
    span = resident * (vector if vector > 1 else WORDS)
    deal = Deal.of(2 * span + 6 * BLOCK * WORDS + vector, resident, vector)
    generator = torch.cuda.default_generators[torch.cuda.current_device() if device.index is None else device.index]
    with _disable_current_modes(), torch.no_grad():
        seams = (0, resident, span, 2 * span, deal.numel - 512)
        elements = torch.cat([torch.arange(max(s - 512, 0), s + 512, device=device) for s in seams])
        wanted = uniform(deal, _SEED, _OFFSET, elements)
        before = generator.get_state()
        try:
            generator.manual_seed(_SEED)
            generator.set_offset(_OFFSET)
            if kind == "dropout":
                ones = torch.ones(deal.numel, dtype=dtype, device=device)
                found = torch.ops.aten.native_dropout.default(ones, 0.25, True)[1][elements]
                wanted = dropout_keeps(wanted, 0.25, dtype)
            else:
                found = torch.rand(deal.numel, device=device)[elements]
                wanted = torch.where(wanted == 1, 0.0, wanted)
            moved = generator.get_offset() - _OFFSET == deal.increment
        finally:
            generator.set_state(before)
        return moved and bool(torch.equal(found, wanted))


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
