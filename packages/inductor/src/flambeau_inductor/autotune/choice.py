"""Whether a product is computed by a kernel of our own, and in which tile.

In: candidates of ``schedule/gemms.py``, the options. Out: for each a tile, or None for the library. With ``max_autotune`` the best few tiles are
measured beside the library. Without, a kernel takes the place of the library only where the model says that it is far faster: where sizes or strides
are such that the library has no fast kernel.
"""

from __future__ import annotations

import torch
from attrs import frozen

from ..codegen.triton.errors import UnsupportedKernel
from ..codegen.triton.templates import product_kernel
from ..config import Config
from ..devices import device_facts, device_of
from ..ir.kernel import Gemm, GemmTile
from ..schedule.gemms import Candidate
from ..schedule.products import Product
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

    def considers(self, product: Product) -> bool:
        """Whether the options and the device allow a kernel of our own, and, without measurement, the model expects it to be far faster."""
        if self.config.gemm == "library" or not self._is_possible(product):
            return False
        if self.config.gemm == "generated" or self._may_measure(product):
            return True
        if product.is_convolution:
            # The library has dozens of kernels for them, of which no model says how fast they are.
            return False
        problem, device = _problem(product), device_facts(product.left.device)
        library = tiles.library_seconds(problem, device)
        own = min((tiles.seconds(problem, tile, device) for tile in self._tiles(product)), default=library)
        return library > _FASTER * own and library - own > _SAVED

    def tile(self, candidate: Candidate) -> GemmTile | None:
        """The tile of a candidate that is considered, None for the library."""
        product = candidate.product
        found = self._tiles(product)
        if not found or not _is_expressed(candidate, found[0]):
            return None
        if self.config.gemm == "auto" and self._may_measure(product):
            return measured_tile(candidate, found[:_MEASURED], self.config)
        return found[0]

    def _tiles(self, product: Product) -> list[GemmTile]:
        """The tiles that a product may be computed in, best first."""
        device = device_of(product.left.device)
        # What a host multiplies to try kernels out is exact.
        libraries = device.libraries
        rounds = libraries.rounds_convolutions if product.is_convolution else libraries.rounds_products
        exact = product.left.dtype is torch.float32 and not device.is_host and not rounds()
        return tiles.candidates(_problem(product), device_facts(product.left.device), exact=exact)

    def _may_measure(self, product: Product) -> bool:
        if not self.config.max_autotune or torch.are_deterministic_algorithms_enabled():
            return False
        return device_of(product.left.device).can_measure()

    def _is_possible(self, product: Product) -> bool:
        device = device_of(product.left.device)
        return device.language(self.config).gemms and device.enabled(self.config)


def _problem(product: Product) -> Problem:
    return Problem(product.left, product.right, int(product.result.strides[1]))


def _is_expressed(candidate: Candidate, tile: GemmTile) -> bool:
    """Whether Triton can express the epilogue."""
    product = candidate.product
    try:
        product_kernel(Gemm(product.left, product.right, candidate.body, tile))
    except UnsupportedKernel:
        return False
    return True
