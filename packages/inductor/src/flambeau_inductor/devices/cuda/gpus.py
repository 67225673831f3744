"""The GPUs: what their drivers tell, and what they do not.

In: a CUDA device. Out: its ``Facts``, read from the driver where there is one, else the H200's, for which kernels are cross-compiled.
"""

from __future__ import annotations

import functools

import torch

from ..facts import H200, Facts

#: Compute capability -> facts that the driver does not tell, or tells only where there is a GPU.
_KNOWN = {
    (8, 0): Facts("A100", 108, 2048, 65536, 40 << 20, 1.7e12, 163 << 10, 2.5e14, 1.25e14),
    (8, 6): Facts("A10", 72, 1536, 65536, 6 << 20, 0.5e12, 99 << 10, 1e14, 5e13),
    (8, 9): Facts("L40S", 142, 1536, 65536, 96 << 20, 0.75e12, 99 << 10, 2.9e14, 1.45e14, 5.8e14),
    (9, 0): H200,
    (10, 0): Facts("B200", 148, 2048, 65536, 126 << 20, 6.5e12, 227 << 10, 1.8e15, 9e14, 3.6e15),
    (12, 0): Facts("RTX PRO 6000", 188, 1536, 65536, 128 << 20, 1.6e12, 99 << 10, 4e14, 2e14, 8e14),
}


def facts_of(device: torch.device) -> Facts:
    """The facts of ``device``; those of the H200 where no GPU is there."""
    if not torch.cuda.is_available():
        return H200
    return _present(device.index if device.index is not None else torch.cuda.current_device())


@functools.cache
def _present(index: int) -> Facts:
    found = torch.cuda.get_device_properties(index)
    known = _KNOWN.get((found.major, found.minor)) or _KNOWN.get((found.major, 0), H200)
    return Facts(
        found.name,
        found.multi_processor_count,
        getattr(found, "max_threads_per_multi_processor", known.threads),
        getattr(found, "regs_per_multiprocessor", known.registers),
        getattr(found, "L2_cache_size", known.cache) or known.cache,
        known.bandwidth,
        getattr(found, "shared_memory_per_block_optin", known.shared),
        known.half_products,
        known.tf32_products,
        known.eighth_products,
        known.tuning,
    )
