"""The core set: ops that every compiler behind us is glad not to see.

Mostly backward formulas, norm and loss composites and tensor factories: each becomes pointwise ops, reductions, views
and indexing. Matrix products, convolutions, attention, sorts and random ops stay whole. `CORE_NAMES` are taken from
torch's own decompositions; `EXTRA` holds ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload

from ..errors import UnsupportedGraph

aten = torch.ops.aten

CORE_NAMES: tuple[str, ...] = (
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "native_batch_norm_backward",
    "_native_batch_norm_legit", "native_layer_norm_backward", "native_group_norm", "native_group_norm_backward",
    "native_layer_norm", "_fused_rms_norm", "_fused_rms_norm_backward",
    "_softmax_backward_data", "_log_softmax_backward_data", "threshold_backward", "sigmoid_backward", "tanh_backward",
    "gelu_backward", "silu_backward", "silu", "elu_backward", "elu", "celu", "hardswish", "hardswish_backward",
    "hardsigmoid", "hardsigmoid_backward", "hardtanh", "hardtanh_backward", "leaky_relu", "leaky_relu_backward",
    "mish", "mish_backward", "softplus", "softplus_backward", "glu", "glu_backward", "log_sigmoid_forward",
    "prelu", "_prelu_kernel", "_prelu_kernel_backward", "selu", "relu6",
    "softshrink", "hardshrink", "logit", "logit_backward",
    "nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward", "mse_loss",
    "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "huber_loss_backward",
    "binary_cross_entropy_backward", "binary_cross_entropy_with_logits", "soft_margin_loss",
    "soft_margin_loss_backward",
    "embedding_dense_backward", "native_dropout_backward", "select_backward", "slice_backward", "diagonal_backward",
    "unfold_backward", "addcmul", "addcdiv", "lerp", "rsub", "xlogy", "nan_to_num",
    "zeros", "ones", "zeros_like", "ones_like", "new_zeros", "new_ones", "new_full", "zero", "fill",
    "masked_fill", "std", "std_mean", "logsumexp", "norm",
    "trace", "stack", "rot90", "roll", "unsqueeze_copy",
    "im2col", "col2im", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "_unsafe_index", "_unsafe_index_put", "heaviside", "hypot", "special_entr",
    "special_log_ndtr", "special_xlog1py", "sinc", "triu", "tril", "_euclidean_dist",
)  # fmt: skip


#: What tensors are made of numbers, where those are integers otherwise.
_KINDS = {bool: torch.bool, float: torch.float64, torch.SymFloat: torch.float64, complex: torch.complex128}


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Any:
    if not isinstance(source, torch.Tensor):
        # A number, as modes are given one: eager makes a tensor of it, and converts that without looking whether it fits.
        kind = _KINDS.get(type(source), torch.int64)
        filled = torch.full(target.shape, source, dtype=kind, device=target.device)
        return filled if kind is target.dtype else aten._to_copy(filled, dtype=target.dtype)
    if target.shape == source.shape and target.stride() == source.stride() and target.device == source.device:
        return aten._to_copy(source, dtype=target.dtype) if target.dtype != source.dtype else aten.clone(source)
    return NotImplemented


def _diagonal_scatter(base: torch.Tensor, new: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A choice at every point; torch's own writes through a view, whose inverse is this very op. Of sizes that change its fake checks none."""
    if base.diagonal(offset, dim1, dim2).shape != new.shape:
        raise UnsupportedGraph("diagonal_scatter is given values of other sizes than the diagonal")
    moved = base.movedim((dim1, dim2), (-2, -1))
    rows = torch.arange(moved.shape[-2], device=base.device).unsqueeze(-1)
    columns = torch.arange(moved.shape[-1], device=base.device)
    if new.shape[-1] == 0:
        return base.clone()
    along = (rows.squeeze(-1) + min(offset, 0)).clamp(0, new.shape[-1] - 1)
    values = new.index_select(-1, along).unsqueeze(-1)
    return torch.where(columns - rows == offset, values.to(base.dtype), moved).movedim((-2, -1), (dim1, dim2))


def _binary_cross_entropy(
    input: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = 1
) -> torch.Tensor:
    """Torch's own leaves out the check that eager's kernel makes."""
    inside = (input >= 0).logical_and(input <= 1).all()
    aten._assert_async.msg(inside, "all elements of input should be between 0 and 1")
    found: torch.Tensor = torch._decomp.decomposition_table[aten.binary_cross_entropy.default](
        input, target, weight, reduction
    )
    return found


def _huber_loss(input: torch.Tensor, target: torch.Tensor, reduction: int = 1, delta: float = 1.0) -> torch.Tensor:
    """Eager's kernel stores each loss in the input's dtype, whatever the target's is; torch's formula promotes both."""
    formula = torch._decomp.decomposition_table[aten.huber_loss.default]
    if input.dtype == target.dtype:
        whole: torch.Tensor = formula(input, target, reduction, delta)
        return whole
    losses: torch.Tensor = formula(input, target, 0, delta).to(input.dtype)
    return losses.mean() if reduction == 1 else losses.sum() if reduction == 2 else losses


def _log_sigmoid_backward(gradient: torch.Tensor, x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """With d = exp(-|x|) the derivative is d / (1 + d), from 1 where x is negative. The CPU's kernel reads d from the forward's `buffer`,
    which a write to x does not change; that of CUDA leaves it empty. Torch's own (2.11) computes d of x again."""
    decay = buffer if buffer.numel() else torch.exp(-torch.abs(x))
    part = decay / (1 + decay)
    return gradient * torch.where(x < 0, 1 - part, part)


def _frac(x: torch.Tensor) -> Any:
    """Torch's own (2.11) gives -0.0 for -0.0, where the kernels give 0.0."""
    return x - torch.trunc(x) if x.is_floating_point() else NotImplemented


def _linalg_vector_norm(
    x: torch.Tensor,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Any:
    """Torch's own (2.11) keeps a dimension of one element that is named from the back. Complex numbers are added in the kernel's order."""
    if x.is_complex():
        return NotImplemented
    dims = dim if dim is None else [d % max(x.ndim, 1) for d in dim]
    found: torch.Tensor = torch._decomp.decomposition_table[aten.linalg_vector_norm.default](
        x, ord, dims, keepdim, dtype=dtype
    )
    return found


EXTRA: dict[OpOverload, Callable[..., Any]] = {
    aten.binary_cross_entropy.default: _binary_cross_entropy,
    aten.copy.default: _copy,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.frac.default: _frac,
    aten.huber_loss.default: _huber_loss,
    aten.linalg_vector_norm.default: _linalg_vector_norm,
    aten.log_sigmoid_backward.default: _log_sigmoid_backward,
}
