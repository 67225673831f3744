"""The CPU: kernels in C++ (or, to try Triton without a GPU, in that), cut into ranges for threads.

In: nothing. Out: the ``Device`` of the type "cpu", registered. Figures are those of one AVX-512 server core and torch's kernels for it.
"""

from __future__ import annotations

import torch

from flambeau_runtime import processor

from ..config import Config
from .device import Device, Eager, Kernels, LastShares, Libraries, Reduced
from .language import CPP, TRITON, Language
from .registry import register

#: Fewer results than this, with at least ``ENOUGH_WORK`` elements each, are worth a second kernel: they become ``_PARTS`` each.
FEW_RESULTS, ENOUGH_WORK = 8, 32768
_PARTS = 32
#: What an element costs that is kept for one more reader, in simple instructions. One core of an EPYC does 34 while it has memory to itself, 10 in its
#: caches; cores share the memory, and what is kept takes some of it.
_STORING = 80

_LANGUAGES = {language.name: language for language in (CPP, TRITON)}


#: What attention's kernel saves for each multiplication of both products beside the library's, in float32: 7.9 ps at 8e6 multiplications, 6.8 at 3.4e7, 5.9 at 6e7, 5.3 at 1e8, 4.2 at 4e8 (heads of 64
#: without a mask, CPU seconds of one core of an EPYC with AVX-512, torch 2.13).
_SAVED_SECONDS = 6e-12
#: How long g++ takes for it longer than for a module without one, and in how many calls it shall have saved that.
_COMPILING_SECONDS, _CALLS = 0.35, 700


def _language(config: Config) -> Language:
    return _LANGUAGES[config.cpu_backend]


def _enabled(config: Config) -> bool:
    return config.cpp_kernels


def _parts(device: torch.device, reduced: Reduced) -> int:
    return _PARTS if reduced.results < FEW_RESULTS and reduced.work >= ENOUGH_WORK else 1


def _channels_last(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.enabled:
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


def _slow_products() -> bool:
    """MKL, which ATen asks, has its kernels for AVX-512 run on processors of Intel alone; oneDNN goes by the instructions that there are."""
    known = processor.maker() not in ("", "GenuineIntel")
    return known and "avx512f" in processor.features() and torch.backends.mkl.is_available()


#: Measured on one core of a Sapphire Rapids (torch 2.13, float32), weights in either layout: 0.76 to 0.97, 0.61 to 0.87, 0.36 to 0.78, 0.55 to 0.89; in
#: bfloat16 less.
_SHARES = LastShares(dense=0.88, grouped=0.75, depthwise=0.6, narrow=0.75)


CPU = register(
    Device(
        type="cpu",
        language=_language,
        enabled=_enabled,
        is_host=True,
        queues=False,
        parts=_parts,
        costs="cpu",
        storing=_STORING,
        kernels=Kernels(in_order=True, scatters_in_order=True, scans_one_by_one=True),
        eager=Eager(
            divisors_are_checked=True,
            accumulates_in_double=True,
            rounds_numbers=True,
            reads_second_as_number=True,
            rounds_logit=True,
            roots_of_halves=False,
            bends_below_zero=True,
            steps_in_vectors=True,
        ),
        libraries=Libraries(
            call_bytes=64 << 10,
            channels_last=_channels_last,
            last_shares=_SHARES,
            weights_are_reordered=True,
            bias_is_written_first=True,
            packs_weights=torch.backends.mkldnn.is_available(),
            slow_products=_slow_products,
            starts_slowly=True,
            small_attention=_COMPILING_SECONDS / (_CALLS * _SAVED_SECONDS),
        ),
    )
)
