"""The ops that lowering wants to meet: those with a rule, and those below, which stay library calls on purpose.

Anything else still works (a library call with the reason "no rule"); this list is where the set is written down.
"""

from __future__ import annotations

from typing import Any

from .registry import lowered_ops

#: Packets that are better done by the library: dense linear algebra, convolution, attention, sorting, random numbers, and reads of
#: data-dependent size.
LIBRARY = (
    # Products and convolution.
    "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addbmm", "_int_mm", "_scaled_mm", "_grouped_mm", "convolution",
    "convolution_backward", "_addmm_activation",
    # Attention.
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward", "_flash_attention_forward",
    "_flash_attention_backward", "_efficient_attention_forward", "_efficient_attention_backward",
    # Order and search.
    "sort", "topk", "kthvalue", "mode", "median", "nanmedian", "searchsorted", "bucketize", "unique_consecutive", "_unique2",
    "unique_dim", "nonzero", "nonzero_static", "masked_select", "histc", "bincount", "cummax", "cummin", "logcumsumexp",
    # Random numbers: the library advances torch's generator exactly as eager does (the draws of `random.py` do so on GPUs).
    "randn", "randint", "randperm", "randn_like", "randint_like", "normal", "normal_functional", "exponential", "geometric",
    "cauchy", "log_normal", "multinomial", "poisson", "_fused_dropout", "random",
    # Pooling and sampling grids.
    "max_pool2d_with_indices", "max_pool2d_with_indices_backward", "max_pool3d_with_indices",
    "max_pool3d_with_indices_backward", "avg_pool2d", "avg_pool2d_backward", "avg_pool3d", "avg_pool3d_backward",
    "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward",
    "adaptive_max_pool2d", "adaptive_max_pool2d_backward", "adaptive_max_pool3d", "adaptive_max_pool3d_backward",
    "fractional_max_pool2d", "fractional_max_pool3d", "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d",
    "upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
    # Segments and other whole kernels.
    "_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_dense_backward", "_cdist_forward", "_cdist_backward",
    "_pdist_forward", "_ctc_loss", "_ctc_loss_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "repeat_interleave.Tensor",
    "segment_reduce", "scatter_reduce", "index_reduce",
    # Dense decompositions.
    "linalg_cholesky_ex", "linalg_inv_ex", "linalg_lu", "linalg_lu_factor_ex", "linalg_qr", "_linalg_svd", "_linalg_eigh",
    "linalg_eig", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve",
    "cholesky_solve", "cholesky_inverse", "linalg_householder_product", "ormqr", "geqrf", "linalg_lstsq", "linalg_matrix_exp",
    "_fft_c2c", "_fft_c2r", "_fft_r2c",
)  # fmt: skip


_LIBRARY_SET = frozenset(LIBRARY)


def is_library(op: Any) -> bool:
    """True for an overload of an op in ``LIBRARY``."""
    name = str(getattr(op, "_overloadname", "")) and str(op).removeprefix("aten.")
    return name in _LIBRARY_SET or name.partition(".")[0] in _LIBRARY_SET


def target_names() -> tuple[str, ...]:
    """Every op of the target set, sorted: overloads with a rule and packets of the library."""
    return tuple(sorted({str(op).removeprefix("aten.") for op in lowered_ops()} | set(LIBRARY)))
