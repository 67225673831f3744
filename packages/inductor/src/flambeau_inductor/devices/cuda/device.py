"""CUDA devices: kernels in Triton, libraries of NVIDIA.

In: nothing. Out: the ``Device`` of the type "cuda", registered. Figures were measured on an H200.
"""

from __future__ import annotations

import torch

from ...config import Config
from ...ops.dtypes import HALVES
from ..device import Device, Kernels, Libraries, Reduced
from ..facts import LAUNCH_SECONDS
from ..language import TRITON, Language
from ..registry import register
from .gpus import facts_of

#: Neighbouring results that one program reduces where memory runs along them, and programs wanted on a multiprocessor.
_COLUMNS, _PROGRAMS = 64, 4
#: The fewest elements that a part of a result should have: along results, along rows.
_WORK_COLUMNS, _WORK_ROWS = 256, 4096
#: By how much a split must be quicker. Row by row it must be far quicker: two kernels fuse less with what is around them.
_GAIN_COLUMNS, _GAIN_ROWS = 1.3, 4.0
#: The first cuDNN whose attention torch prefers to its other kernels, and the widest heads that it has gradients of.
_CUDNN, _WIDEST = 90900, 128


def _language(config: Config) -> Language:
    return TRITON


def _enabled(config: Config) -> bool:
    return config.triton_kernels


def _parts(device: torch.device, reduced: Reduced) -> int:
    """As many as give every multiprocessor programs, where reading in that many is so much quicker that a second launch pays."""
    if reduced.results < 1:
        return 1
    facts, columns = facts_of(device), reduced.along_results
    programs = -(-reduced.results // _COLUMNS) if columns else reduced.results
    wanted = _PROGRAMS * facts.multiprocessors
    parts = min(wanted // programs, reduced.work // (_WORK_COLUMNS if columns else _WORK_ROWS))
    if parts < 2:
        return 1
    together = facts.seconds(reduced.bytes_read, programs)
    apart = facts.seconds(reduced.bytes_read, programs * parts) + LAUNCH_SECONDS
    return parts if together > (_GAIN_COLUMNS if columns else _GAIN_ROWS) * apart else 1


def _free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)


def _channels_last(dtype: torch.dtype) -> bool:
    if not torch.backends.cudnn.enabled:
        return False
    if dtype in (torch.float16, torch.bfloat16):
        return True
    return dtype is torch.float32 and _rounds_convolutions()


def _rounds_convolutions() -> bool:
    # Not ``allow_tf32``: reading that raises where a program has set precisions one operator at a time.
    return bool(torch.backends.cudnn.enabled and torch.backends.cudnn.conv.fp32_precision == "tf32")


def _multiplies_groups(device: torch.device, dtype: torch.dtype) -> bool:
    # Where no GPU is there, kernels are compiled for Hopper.
    capability = torch.cuda.get_device_capability(device) if torch.cuda.is_available() else (9, 0)
    return dtype is torch.bfloat16 and capability in ((9, 0), (10, 0), (10, 3))


def _attends(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    # Its gradients are not the same at each run, and somebody may have said that it shall not be taken.
    if torch.are_deterministic_algorithms_enabled() or not torch.backends.cuda.cudnn_sdp_enabled():
        return False
    if dtype not in HALVES or width % 8 or width > _WIDEST:
        return False
    # Where no GPU is there, programs are compiled for Hopper. Elsewhere nobody measured it.
    if not torch.cuda.is_available():
        return True
    cudnn = torch.backends.cudnn
    version = (cudnn.version() or 0) if cudnn.enabled else 0
    return version >= _CUDNN and torch.cuda.get_device_capability(device) == (9, 0)


def _rounds_products() -> bool:
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


CUDA = register(
    Device(
        type="cuda",
        language=_language,
        enabled=_enabled,
        facts=facts_of,
        parts=_parts,
        can_measure=torch.cuda.is_available,
        free_bytes=_free_bytes,
        kernels=Kernels(adds_halves=True, draws=True),
        libraries=Libraries(
            call_bytes=4 << 20,
            channels_last=_channels_last,
            bias_is_a_kernel=True,
            bias_slows_products=True,
            takes_activations=True,
            leaves_narrow_idle=True,
            attends=_attends,
            attention_reads_strides=True,
            products_want_rows_aligned=True,
            multiplies_groups=_multiplies_groups,
            depthwise_is_slow=True,
            rounded_want_terms_in_rows=True,
            rounds_products=_rounds_products,
            rounds_convolutions=_rounds_convolutions,
        ),
    )
)
