"""TF32 on or off for both libraries, wherever the tests run.

In: whether it may be used, or what `tf32` gave before. Out: nothing. torch's op database, once imported, forbids assignments to `torch.backends.cudnn`
in the whole process; its context manager would also put every other flag of cuDNN back to a default. So cuDNN's flag is set
as that module sets it.
"""

from __future__ import annotations

import torch


def use_tf32(on: bool) -> None:
    """Set the flags of cuBLAS and cuDNN."""
    torch.backends.cuda.matmul.allow_tf32 = on
    torch._C._set_cudnn_allow_tf32(on)


def tf32() -> tuple[bool, bool, str]:
    """The flags of cuBLAS and cuDNN, and the newer setting that the first of them changes too."""
    precision = torch._C._get_fp32_precision_getter("cuda", "matmul")
    return torch.backends.cuda.matmul.allow_tf32, torch._C._get_cudnn_allow_tf32(), precision


def restore(before: tuple[bool, bool, str]) -> None:
    """Put back what `tf32` gave."""
    torch.backends.cuda.matmul.allow_tf32 = before[0]
    torch._C._set_cudnn_allow_tf32(before[1])
    torch._C._set_fp32_precision_setter("cuda", "matmul", before[2])
