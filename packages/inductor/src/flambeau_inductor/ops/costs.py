"""What scalar ops cost: the one table that every heuristic about work reads.

In: an op's name, the dtype of its operands, a target. Out: about how many simple instructions (an addition of floats) take as long
(``COSTS[name].of(dtype, target)``; ``ir/scalar.py:cost`` asks for a node). Beside them stands whether the op is a *function*: a body of many
instructions, where others are one or a few of the machine's.

Where the numbers come from:

- CPU: seconds for an element in a loop over 16384 of them that does only this, less those of a loop that copies, by those of an addition
  or product in a chain of twenty (0.0099 ns in float32, 0.0199 in float64); the least of 300 runs, one thread of an EPYC with AVX-512. Those
  above 100 are computed element by element by the C library.
- CUDA: instructions on the path that is usually taken, read off the machine code for sm_90 (``cuobjdump -sass`` of a kernel that does only this,
  four elements a thread, less one that copies). Code for the rare case (arguments out of range, large angles) is not counted.

Numbers are for kernels as they are written now: who changes an implementation measures it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from attrs import frozen

Target = Literal["cpu", "cuda"]


@frozen(eq=False)
class Cost:
    """In simple instructions: on a CPU of ``single`` and ``double`` floats, on a GPU (``cuda``) of floats. ``integer``: (CPU, CUDA), where integers
    cost otherwise than one instruction. ``function``: it is no instruction of the machine."""

    single: int = 1
    double: int = 1
    cuda: int = 1
    integer: tuple[int, int] = (1, 1)
    function: bool = False

    def of(self, dtype: torch.dtype, target: Target) -> int:
        """The cost on operands of ``dtype``."""
        if not dtype.is_floating_point:
            return self.integer[target == "cuda"]
        if target == "cuda":
            return self.cuda
        return self.double if dtype is torch.float64 else self.single


def _functions(rows: dict[str, tuple[int, int, int]]) -> dict[str, Cost]:
    return {name: Cost(*row, integer=(row[0], row[2]), function=True) for name, row in rows.items()}


COSTS: Mapping[str, Cost] = {
    # Instructions of the machine that take several times as long as an addition.
    "truediv": Cost(5, 7, 10),
    "reciprocal": Cost(5, 10, 8),
    "sqrt": Cost(12, 22, 8),
    "rsqrt": Cost(26, 37, 4),
    # Functions: float32 and float64 on a CPU, floats on CUDA.
    **_functions({
        "exp": (16, 28, 9), "exp2": (11, 120, 4), "expm1": (21, 210, 16), "log": (37, 160, 12), "log2": (54, 150, 4), "log10": (39, 280, 14),
        "log1p": (49, 240, 18), "sigmoid": (30, 190, 18), "tanh": (42, 420, 16), "erf": (30, 160, 14), "sin": (30, 400, 13), "cos": (28, 390, 13),
        "tan": (770, 440, 45), "asin": (340, 200, 20), "acos": (460, 230, 20), "atan": (660, 390, 18), "atan2": (920, 600, 30),
        "sinh": (970, 410, 25), "cosh": (570, 300, 25), "asinh": (1100, 510, 30), "acosh": (1000, 450, 30), "atanh": (1100, 460, 25),
        "erfc": (360, 180, 30), "erfinv": (4700, 2300, 15), "lgamma": (810, 460, 110), "digamma": (1500, 760, 200), "hypot": (290, 270, 15),
        "nextafter": (240, 170, 38), "philox_uniform": (100, 100, 25),  # ten rounds give four numbers, which neighbours share
    }),
    # A loop over the bits of the exponent for integers.
    "pow": Cost(160, 530, 45, integer=(160, 120), function=True),
    # No machine divides vectors of integers.
    "floordiv": Cost(320, 160, 43, integer=(190, 36), function=True),
    "truncdiv": Cost(8, 10, 13, integer=(190, 26), function=True),
    "remainder": Cost(290, 150, 33, integer=(190, 33), function=True),
    "fmod": Cost(290, 140, 25, integer=(190, 24), function=True),
}  # fmt: skip
"""Ops that are missing here are simple: one instruction, on each target."""

FUNCTIONS = frozenset(name for name, cost in COSTS.items() if cost.function)
"""What is slower by far where it is not computed by vectors."""
