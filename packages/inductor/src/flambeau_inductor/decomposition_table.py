"""Which ATen ops are rewritten into simpler ones while the graph is traced, so that lowering sees a small set.

In: nothing. Out: ``decompositions()``, a dict ``OpOverload -> callable``; ``None`` means "leave this op whole": lowering has a better
rule than the decomposition, or the library is faster. The callables are torch's own decompositions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload

from .devices import device_of
from .lowering import RULES_LOADED
from .lowering.registry import lowered_ops
from .lowering.target import LIBRARY

assert RULES_LOADED

#: Packets whose every overload that torch can decompose, and that has no lowering rule, is decomposed.
DECOMPOSED = (
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
    "linspace", "logspace", "narrow_copy", "norm", "pixel_shuffle", "pixel_unshuffle", "reflection_pad1d", "reflection_pad2d",
    "reflection_pad3d", "reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", "renorm",
    "replication_pad1d", "replication_pad2d", "replication_pad3d", "rot90", "select_backward", "slice_backward",
    "split_with_sizes_copy", "std", "std_mean", "triu_indices", "tril_indices", "unfold_backward", "unfold_copy", "unsafe_split",
    "unsafe_split_with_sizes", "var", "var_mean", "expand_copy", "squeeze_copy", "unsqueeze_copy", "t_copy", "transpose_copy",
    "permute_copy", "view_copy", "alias_copy", "diagonal_copy", "as_strided_copy", "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate", "unbind_copy", "_euclidean_dist", "pairwise_distance",
    # Interpolation.
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip


#: Their kernels take images of uint8 with integer weights.
_WEIGHTED_BYTES = ("upsample_bilinear2d", "upsample_bicubic2d")


def _but_bytes(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula that leaves uint8 to the kernel, which computes with integer weights."""

    @functools.wraps(formula)
    def decompose(value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if value.dtype is torch.uint8 else formula(value, *args, **kwargs)

    return decompose


#: Their kernels on the CPU step from one vector of elements to the next: what they round each first element to, all of its vector have.
_STEPPED = ("linspace", "logspace")


def _but_rounded_steps(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A formula that leaves integers and short floats on the CPU to the kernel: which step is rounded depends on its registers."""

    @functools.wraps(formula)
    def decompose(*args: Any, dtype: torch.dtype | None = None, device: Any = None, **kwargs: Any) -> Any:
        result, place = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
        if (
            device_of(place).eager.steps_in_vectors
            and not result.is_complex
            and result not in (torch.float32, torch.float64)
        ):
            return NotImplemented
        return formula(*args, dtype=dtype, device=device, **kwargs)

    return decompose


def overloads_of(name: str) -> tuple[OpOverload, ...]:
    """The functional overloads that ``"relu"`` (all) or ``"max.other"`` (one) names; empty where this torch lacks it."""
    base, _, suffix = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None:
        return ()
    names = [suffix] if suffix else packet.overloads()
    found = [getattr(packet, overload) for overload in names if hasattr(packet, overload)]
    return tuple(op for op in found if not op._schema.is_mutable)


@functools.cache
def _table() -> dict[OpOverload, Callable[..., Any] | None]:
    table: dict[OpOverload, Callable[..., Any] | None] = {}
    for name in DECOMPOSED:
        for op in overloads_of(name):
            if op in decomposition_table:
                formula = decomposition_table[op]
                formula = _but_bytes(formula) if name in _WEIGHTED_BYTES else formula
                table[op] = _but_rounded_steps(formula) if name in _STEPPED else formula
    for op in lowered_ops():
        table[op] = None
    for name in LIBRARY:
        for op in overloads_of(name):
            table[op] = None
    return table


def decompositions() -> dict[OpOverload, Callable[..., Any] | None]:
    """The table to trace with; the caller may change its copy."""
    return dict(_table())
