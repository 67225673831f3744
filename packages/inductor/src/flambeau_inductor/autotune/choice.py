"""Whether a product is computed by a kernel of our own, and in which tile.

In: candidates of ``schedule/gemms.py``, the options. Out: for each a tile, or None for the library. With ``max_autotune`` the best few tiles are
measured beside the library. Without, a kernel takes the place of the library only where the model says that it is far faster: where sizes or strides
are such that the library has no fast kernel.
"""

from __future__ import annotations

import torch
from attrs import frozen

from ..codegen.triton.errors import UnsupportedKernel
from ..codegen.triton.templates.gemm import gemm_kernel
from ..config import Config
from ..devices import device_facts, device_of
from ..ir.kernel import Gemm, GemmTile
from ..schedule.gemms import Candidate
from . import tiles
from .measure import measured_tile
from .tiles import Problem

#: By how much a kernel must be faster than the library to be compiled without measurement, and the seconds of a call that it must save.
_FASTER, _SAVED = 1.5, 50e-6
#: Tiles that are measured, the best by the model.
_MEASURED = 5


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
        found = tiles.candidates(problem, device)
        if not found or not _is_expressed(candidate, found[0]):
            return None
        if self.config.gemm == "generated":
            return found[0]
        if self._may_measure(candidate):
            return measured_tile(candidate, found[:_MEASURED], self.config)
        library, own = tiles.library_seconds(problem, device), tiles.seconds(problem, found[0], device)
        return found[0] if library > _FASTER * own and library - own > _SAVED else None

    def _may_measure(self, candidate: Candidate) -> bool:
        if not self.config.max_autotune or torch.are_deterministic_algorithms_enabled():
            return False
        return device_of(candidate.body.device).can_measure()

    def _is_possible(self, candidate: Candidate) -> bool:
        device, dtype = device_of(candidate.body.device), candidate.product.left.dtype
        if not device.language(self.config).gemms or not device.enabled(self.config):
            return False
        # What a host multiplies to try kernels out is exact.
        return dtype is not torch.float32 or device.is_host or device.libraries.rounds_products()


def _is_expressed(candidate: Candidate, tile: GemmTile) -> bool:
    """Whether Triton can express the epilogue."""
    product = candidate.product
    try:
        gemm_kernel(Gemm(product.left, product.right, candidate.body, tile))
    except UnsupportedKernel:
        return False
    return True
