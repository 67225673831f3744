"""The ATen ops that lowering has no rule for, and what becomes of each; those with a rule stand beside it (``@lowers``).

In: nothing. Out: rows in ``aten.py``'s registry. Anything without a row still works (a library call with the reason "no rule"): here the set is
written down. A new op of these kinds is one name here, with the facts that go with it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .aten import Formula, Trait, Treatment, declare

# Packets that are better done by the library: dense linear algebra, convolution, attention, sorting, random numbers, and reads of
# data-dependent size.
declare(
    # Products and convolution.
    "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot", "addbmm", "_int_mm", "_scaled_mm", "_grouped_mm",
    "_weight_int8pack_mm",
    "_addmm_activation",
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
    "fractional_max_pool2d", "fractional_max_pool3d", "grid_sampler_2d", "grid_sampler_2d_backward", "grid_sampler_3d",
    "upsample_bilinear2d_backward", "upsample_bicubic2d_backward",
    # Segments and other whole kernels.
    "_embedding_bag", "_embedding_bag_forward_only", "_embedding_bag_dense_backward", "_cdist_forward", "_cdist_backward",
    "_pdist_forward", "_ctc_loss", "_ctc_loss_backward", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "repeat_interleave.Tensor",
    "segment_reduce", "index_reduce",
    # Dense decompositions.
    "linalg_cholesky_ex", "linalg_inv_ex", "linalg_lu", "linalg_lu_factor_ex", "linalg_qr", "_linalg_svd", "_linalg_eigh",
    "linalg_eig", "_linalg_det", "_linalg_slogdet", "_linalg_solve_ex", "linalg_solve_triangular", "triangular_solve",
    "cholesky_solve", "cholesky_inverse", "linalg_householder_product", "ormqr", "geqrf", "linalg_lstsq", "linalg_matrix_exp",
    "_fft_c2c", "_fft_c2r", "_fft_r2c",
    treatment=Treatment.LIBRARY,
)  # fmt: skip
declare("scatter_reduce.two", treatment=Treatment.LIBRARY, traits=Trait.CHANGED_COPY)
declare("as_strided_scatter", treatment=Treatment.LIBRARY, traits=Trait.BY_STRIDES)
declare("mkldnn_rnn_layer", treatment=Treatment.LIBRARY, workspace=3)

# Packets whose every overload that torch can decompose, and that has no lowering rule, is taken apart.
declare(
    # Activations and their gradients.
    "elu_backward", "gelu_backward", "glu", "glu_backward", "hardshrink", "hardsigmoid", "hardsigmoid_backward", "hardswish",
    "hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "log_sigmoid_forward", "logit_backward", "mish",
    "mish_backward", "prelu", "_prelu_kernel", "_prelu_kernel_backward", "relu6", "rrelu_with_noise_backward", "selu",
    "silu_backward", "softplus", "softplus_backward",
    # Losses.
    "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "huber_loss_backward", "mse_loss", "mse_loss_backward",
    "nll_loss2d_forward", "nll_loss_forward", "smooth_l1_loss", "smooth_l1_loss_backward", "soft_margin_loss",
    "soft_margin_loss_backward",
    # Normalisation.
    "_fused_rms_norm_backward", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "native_batch_norm",
    "native_batch_norm_backward", "native_group_norm_backward", "_batch_norm_with_update_functional", "batch_norm_backward",
    "_safe_softmax",
    # Elementwise composites.
    "aminmax", "deg2rad", "dist", "heaviside", "isin", "isneginf", "isposinf", "masked_fill", "nan_to_num", "nansum", "rad2deg",
    "sgn", "sinc", "zero", "special_bessel_j0", "special_entr", "special_erfcx", "special_log_ndtr", "special_ndtr", "mvlgamma",
    "trace", "take", "count_nonzero",
    # Shapes, views and factories.
    "affine_grid_generator", "block_diag", "channel_shuffle", "col2im", "diag_embed", "diagonal_backward", "hann_window", "im2col",
    "narrow_copy", "norm", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", "renorm",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "rot90", "select_backward", "slice_backward",
    "split_with_sizes_copy", "std", "std_mean", "triu_indices", "tril_indices", "unfold_backward", "unfold_copy",
    "var", "var_mean", "expand_copy", "squeeze_copy", "unsqueeze_copy", "t_copy", "transpose_copy",
    "permute_copy", "view_copy", "alias_copy", "diagonal_copy", "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate", "unbind_copy", "_euclidean_dist", "pairwise_distance",
    # Interpolation.
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_trilinear3d",
    treatment=Treatment.DECOMPOSED,
)  # fmt: skip
declare("as_strided_copy", treatment=Treatment.DECOMPOSED, traits=Trait.BY_STRIDES)
declare("unsafe_split", "unsafe_split_with_sizes", treatment=Treatment.DECOMPOSED, traits=Trait.HIDDEN_VIEW)
declare("unsafe_chunk", traits=Trait.HIDDEN_VIEW)


def _but_bytes(formula: Formula) -> Formula:
    """A formula that leaves uint8 to the kernel, which computes with integer weights."""

    @functools.wraps(formula)
    def decompose(value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if value.dtype is torch.uint8 else formula(value, *args, **kwargs)

    return decompose


declare("upsample_bilinear2d", "upsample_bicubic2d", treatment=Treatment.DECOMPOSED, adapt=_but_bytes)

# Numbers outside tensors (``lowering/symbolic.py``).
declare("item", "_local_scalar_dense", treatment=Treatment.ITEM)
declare("_assert_scalar", treatment=Treatment.ASSERTION)
declare("sym_constrain_range", "sym_constrain_range_for_size", "_assert_tensor_metadata", treatment=Treatment.IGNORED)
