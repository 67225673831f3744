"""Whether a product is computed by a kernel of our own, and in which tile.

In: candidates of ``schedule/gemms.py``, the options. Out: for each a tile, or None for the library. Without measurement a kernel takes the place of the
library only where the model says that it is far faster: where sizes or strides are such that the library has no fast kernel.
"""

from __future__ import annotations

import torch
from attrs import frozen

from ..codegen.triton.errors import UnsupportedKernel
from ..codegen.triton.templates.gemm import gemm_kernel
from ..config import Config
from ..device import device_facts
from ..ir.kernel import Gemm, GemmTile
from ..schedule.combine import target_of
from ..schedule.gemms import Candidate
from . import tiles
from .tiles import Problem

#: By how much a kernel must be faster than the library to be compiled without measurement, and the seconds of a call that it must save.
_FASTER, _SAVED = 1.5, 50e-6


@frozen
class ChooseGemm:
    """The choice for products under ``config``."""

    config: Config

    def __call__(self, candidate: Candidate) -> GemmTile | None:
        """The tile of a candidate, None for the library."""
        if self.config.gemm == "library" or not self._is_possible(candidate):
            return None
        product = candidate.product
        problem = Problem(product.left, product.right, int(product.out.layout.strides[-2]))
        device = device_facts(candidate.body.device)
        for tile in tiles.candidates(problem, device):
            if self.config.gemm == "auto":
                library, own = tiles.library_seconds(problem, device), tiles.seconds(problem, tile, device)
                if library < _FASTER * own or library - own < _SAVED:
                    return None
            return tile if _is_expressed(candidate, tile) else None
        return None

    def _is_possible(self, candidate: Candidate) -> bool:
        device, dtype = candidate.body.device, candidate.product.left.dtype
        if target_of(candidate.body, self.config.cpu_backend) != "triton" or not self.config.triton_kernels:
            return False
        return dtype is not torch.float32 or device.type == "cpu" or takes_tf32()


def takes_tf32() -> bool:
    """Whether products of float32 on a GPU may round their operands to TF32."""
    # Not ``allow_tf32``: reading that raises where a program has set precisions one operator at a time.
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def _is_expressed(candidate: Candidate, tile: GemmTile) -> bool:
    """Whether Triton can express the epilogue."""
    product = candidate.product
    try:
        gemm_kernel(Gemm(product.left, product.right, candidate.body, tile))
    except UnsupportedKernel:
        return False
    return True
