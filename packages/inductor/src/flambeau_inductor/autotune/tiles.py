"""The tiles that a product may be computed in, and about how long each takes.

In: a product's operands, a GPU's facts. Out: candidates, best first by the model. The model counts rounds of tiles over the multiprocessors, what a tile
of its shape reaches of the arithmetic that the library reaches, and the bytes that have to move.
"""

from __future__ import annotations

import math

import torch
from attrs import frozen

from ..codegen.triton.templates.gemm import ALIGNMENT, Side, left_side, resident, shared_bytes
from ..codegen.triton.templates.windows import WindowSide
from ..devices import H200, Facts
from ..ir.kernel import GemmTile, Window
from ..ir.layout import Ref

#: Rows, columns and warps of the tiles, with the part of the library's arithmetic that a large product reaches in them. Measured on an H200
#: (bfloat16, 8,192 x 8,192 x 8,192 and 4,096 x 11,008 x 4,096); columns of 256 do not fit the registers of two programs.
_SHAPES = (
    (128, 256, 8, 0.99),
    (256, 128, 8, 0.95),
    (128, 128, 4, 0.86),
    (128, 128, 8, 0.85),
    (64, 256, 4, 0.88),
    (64, 128, 4, 0.70),
    (64, 64, 4, 0.50),
    (32, 128, 4, 0.40),
    (16, 128, 4, 0.22),
    (16, 64, 4, 0.20),
)
_STAGES = (4, 3, 2)
#: Bytes of terms that one step loads of each row.
_STEP_BYTES = 128
#: The fewest that an instruction takes (of 16 bits), and those of a window whose taps have fewer: each of them is looked up by itself.
_FEWEST_TERMS, _TERMS_OF_SEVERAL_TAPS = 16, 32
#: What is left of that where operands come by address (0.6), where their strides are odd as well, and where float32 operands lie across the terms,
#: which Hopper's instruction does not take: 59 to 77 TFLOP/s of 390.
_BY_ADDRESS, _ODD, _ACROSS = 0.6, 0.35, 0.17
#: What the library reaches where memory is not aligned as its fast kernels need it: 94 to 144 TFLOP/s, of 16-bit numbers and of TF32 alike.
UNALIGNED_LIBRARY = 1.2e14


@frozen
class Problem:
    """A product: (batch, m, k) times (batch, k, n) into results of one stride of one element, ``step`` elements between rows."""

    left: Ref | Window
    right: Ref
    step: int

    @property
    def dtype(self) -> torch.dtype:
        """The operands'."""
        return self.left.dtype

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """batch, m, n, k."""
        batch, m, k = (int(size) for size in self.left.sizes)
        return batch, m, int(self.right.sizes[2]), k

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        batch, m, n, k = self.sizes
        return 2.0 * batch * m * n * k

    @property
    def bytes(self) -> int:
        """Of operands and results."""
        batch, m, n, k = self.sizes
        return batch * (m * k + k * n + m * n) * self.dtype.itemsize

    def sides(self, tile: GemmTile) -> tuple[Side | WindowSide, Side]:
        """Both operands in blocks."""
        return left_side(self.left, tile), Side("right", self.right, 2, (tile.columns, tile.terms))

    @property
    def is_aligned(self) -> bool:
        """Whether the library has its fast kernels: starts and strides are multiples of 16 bytes, and so are rows along which terms are summed."""
        sides = self.sides(GemmTile(64, 64, 64, 4, 2))
        lengths = [side.sizes[2] for side in sides if side.by_terms]
        each = self.dtype.itemsize
        return all(side.is_fetched for side in sides) and not any(n * each % ALIGNMENT for n in (*lengths, self.step))


def candidates(problem: Problem, device: Facts) -> list[GemmTile]:
    """Tiles that fit the device, the one that takes least time by the model first."""
    _, m, n, _ = problem.sizes
    terms = _terms(problem)
    found = []
    for rows, columns, warps, _ in _SHAPES:
        if (rows > 16 and rows >= 2 * m) or (columns > 64 and columns >= 2 * n):
            continue
        for stages in _STAGES:
            tile = GemmTile(rows, columns, terms, warps, stages)
            if shared_bytes(tile, problem.dtype) <= device.shared:
                found.append(tile)
                break
    return sorted(found, key=lambda tile: seconds(problem, tile, device))


def _terms(problem: Problem) -> int:
    """Terms of a step: of a window those that are of one tap, where that are not too few."""
    terms = max(_FEWEST_TERMS, min(_STEP_BYTES // problem.dtype.itemsize, 1 << (problem.sizes[3] - 1).bit_length()))
    if isinstance(problem.left, Window):
        of_one_tap = math.gcd(problem.left.channels, terms)
        return of_one_tap if of_one_tap >= _FEWEST_TERMS else min(terms, _TERMS_OF_SEVERAL_TAPS)
    return terms


def seconds(problem: Problem, tile: GemmTile, device: Facts) -> float:
    """About how long the product takes in this tile."""
    batch, m, n, k = problem.sizes
    tiles = batch * -(-m // tile.rows) * -(-n // tile.columns)
    places = device.multiprocessors * resident(tile, problem.dtype, device)
    rounds = -(-tiles // places)
    reached = _reached(problem, tile) * _rate(problem.dtype, device) / places
    return max(rounds * 2.0 * tile.rows * tile.columns * k / reached, problem.bytes / device.bandwidth)


def library_seconds(problem: Problem, device: Facts) -> float:
    """The same for the library."""
    rate = _rate(problem.dtype, device)
    if not problem.is_aligned:
        rate *= UNALIGNED_LIBRARY / _rate(problem.dtype, H200)
    return max(problem.flops / rate, problem.bytes / device.bandwidth)


def _rate(dtype: torch.dtype, device: Facts) -> float:
    return device.half_products if dtype.itemsize == 2 else device.tf32_products


def _reached(problem: Problem, tile: GemmTile) -> float:
    (part,) = (
        part
        for rows, columns, warps, part in _SHAPES
        if (rows, columns, warps) == (tile.rows, tile.columns, tile.num_warps)
    )
    for side in problem.sides(tile):
        if problem.dtype is torch.float32 and not side.by_terms:
            part *= _ACROSS
        elif not side.is_fetched:
            odd = any(step * problem.dtype.itemsize % 4 for step in side.steps if step != 1)
            part *= _ODD if odd else _BY_ADDRESS
    return part
