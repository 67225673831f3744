"""What of torch's global state decides how its libraries compute, and so how fast: precisions, algorithms that are allowed.

In: nothing, or what another process has. Out: settings as JSON holds them, or a process that computes by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.backends import cuda, cudnn, mkldnn

#: By library, or operators of it: the attributes that are settings. Precisions of float32 not by the older switches, which raise once a program has used the newer ones.
_ATTRIBUTES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "cuda.matmul": (
        cuda.matmul,
        (
            "fp32_precision",
            "allow_fp16_reduced_precision_reduction",
            "allow_bf16_reduced_precision_reduction",
            "allow_fp16_accumulation",
        ),
    ),
    "cudnn": (cudnn, ("enabled", "benchmark", "deterministic")),
    "cudnn.conv": (cudnn.conv, ("fp32_precision",)),
    "cudnn.rnn": (cudnn.rnn, ("fp32_precision",)),
    "mkldnn": (mkldnn, ("enabled", "deterministic")),
    "mkldnn.matmul": (mkldnn.matmul, ("fp32_precision",)),
    "mkldnn.conv": (mkldnn.conv, ("fp32_precision",)),
    "mkldnn.rnn": (mkldnn.rnn, ("fp32_precision",)),
}
#: Which kernels attention may take: how that is read and set.
_ATTENTION: dict[str, tuple[Callable[[], bool], Callable[[bool], None]]] = {
    "flash_sdp": (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    "mem_efficient_sdp": (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    "math_sdp": (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    "cudnn_sdp": (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
}


def current() -> dict[str, Any]:
    """The settings of this process, by name."""
    found = {f"{where}.{name}": getattr(owner, name) for where, (owner, names) in _ATTRIBUTES.items() for name in names}
    return {**found, **{name: read() for name, (read, _) in _ATTENTION.items()}}


def apply(settings: Mapping[str, Any]) -> None:
    """Compute as the process whose ``current()`` is ``settings``."""
    for where, (owner, names) in _ATTRIBUTES.items():
        for name in names:
            wanted = settings[f"{where}.{name}"]
            if getattr(owner, name) != wanted:
                setattr(owner, name, wanted)
    for name, (_, write) in _ATTENTION.items():
        write(settings[name])
