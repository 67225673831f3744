"""Ops whose kernels answer otherwise than torch's fake tensors say.

In: an op, its (fake) arguments and the predicted result. Out: what the library returns. Each entry was found by running
the op; `tests/conformance/test_predictions.py` compares programs around them, not every op.
"""

from __future__ import annotations

from typing import Any

import torch

from .layout import hint

aten = torch.ops.aten

#: They lay their result out row-major, whatever the argument's layout is.
_ROW_MAJOR = frozenset(
    {aten.poisson.default, aten.normal.Tensor_Tensor, aten.normal.float_Tensor, aten._standard_gamma.default}
)


#: The same, whatever a formula makes of the argument's layout: the kernel allocates its result before it looks.
_ALLOCATES_ROW_MAJOR = frozenset(
    {
        aten.pow.Scalar, aten.im2col.default, aten.upsample_nearest1d.default, aten.upsample_nearest1d.vec,
        aten._upsample_nearest_exact1d.default, aten._upsample_nearest_exact1d.vec, aten.glu_backward.default,
        aten.huber_loss_backward.default, aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default,
        aten.native_layer_norm_backward.default,
    }
)  # fmt: skip

#: Their results lie as a product of the first two arguments does, which fakes get right: they go by formulas of their own.
_AS_A_PRODUCT = frozenset(
    {aten.copysign.Tensor, aten.div.Tensor_mode, aten.floor_divide.default, aten.native_dropout_backward.default}
)

#: A result of no elements has the strides of the argument that it is like, whatever they are.
_LIKE_EMPTY = frozenset(
    {
        aten.zeros_like.default, aten.ones_like.default, aten.full_like.default, aten.flip.default, aten.fill.Scalar, aten.fill.Tensor,
        aten.hardtanh.default, aten.nan_to_num.default,
    }
)  # fmt: skip

#: Loops over elements of several tensors that formulas in Python stand for: those lay their results out by orders of their own.
_FORMULAS = frozenset(
    {
        aten.heaviside.default, aten.xlogy.Tensor, aten.special_xlog1py.default, aten.logaddexp.default, aten.logaddexp2.default,
        aten.mse_loss.default,
    }
)  # fmt: skip

#: Tagged as loops over elements; they lay their results out by the rule for copies, which fakes follow.
_COPIES = frozenset({aten.clone.default, aten._to_copy.default})

#: Ops whose result lies as their arguments decide, where all sizes are known.
_BY_ARGUMENTS = _AS_A_PRODUCT | _LIKE_EMPTY | {aten.diagonal_scatter.default}

#: The result has the memory format that the argument suggests: row-major, or channels-last.
_SUGGESTED_FORMAT = frozenset(
    {
        aten.native_batch_norm.default,
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_functional.default,
        aten._native_batch_norm_legit_no_training.default,
    }
)

#: Transforms of one dimension: MKL's results lie with that dimension innermost, which not every torch's fakes know.
_TRANSFORMS = frozenset({aten._fft_c2c.default, aten._fft_r2c.default})

#: The sum of bags of bfloat16 takes the fast path, which needs no index of bags; fakes know that of wider types only.
_BAGS = frozenset({aten._embedding_bag.default, aten._embedding_bag_forward_only.default})


def corrected(op: Any, args: tuple[Any, ...], out: Any) -> Any:
    """`out`, or the fake that shows what the op's kernel really returns."""
    if op in _BAGS and args[0].dtype is torch.bfloat16 and _sums_fast(*args):
        return (out[0], torch.empty([0], dtype=out[1].dtype, device=out[1].device), *out[2:])
    wanted = strides_of_kernel(op, args, out)
    if wanted is None:
        return out
    first = out if isinstance(out, torch.Tensor) else out[0]
    laid = torch.empty_strided(first.shape, wanted, dtype=first.dtype, device=first.device)
    return laid if first is out else type(out)((laid, *out[1:]))


def strides_of_kernel(op: Any, args: tuple[Any, ...], out: Any) -> Any:
    """The strides of the (first) result where they are not those of `out`; None where they are."""
    if op in _ROW_MAJOR or op in _ALLOCATES_ROW_MAJOR:
        first = out if isinstance(out, torch.Tensor) else out[0]
        if first is None:
            return None
        rows = _row_major([max(size, 1) if isinstance(size, int) else size for size in first.shape])
        return None if list(map(hint, rows)) == list(map(hint, first.stride())) else rows
    if op in _SUGGESTED_FORMAT and args[0].device.type == "cpu" and args[0].dim() > 1:
        return _suggested(args[0], out[0])
    if op in _TRANSFORMS and len(args[1]) == 1 and args[0].device.type == "cpu" and torch.backends.mkl.is_available():
        return _of_a_transform(args[0], args[1][0] % args[0].dim(), out)
    if (
        op not in _BY_ARGUMENTS
        and op not in _COPIES
        and torch.Tag.pointwise in op.tags
        and isinstance(out, torch.Tensor)
    ):
        return _of_a_loop(op, args, out)
    if op not in _BY_ARGUMENTS or None in map(hint, (*out.shape, *out.stride())):
        return None
    if op in _AS_A_PRODUCT:
        wanted = (args[0] * args[1]).stride()
    elif op is aten.diagonal_scatter.default:
        spread = any(stride == 0 and size != 1 for size, stride in zip(args[0].shape, args[0].stride()))
        wanted = _row_major(out.shape) if spread else args[0].stride()
    else:
        wanted = args[0].stride() if 0 in map(hint, out.shape) else out.stride()
    return None if tuple(wanted) == tuple(out.stride()) else wanted


def _of_a_loop(op: Any, args: tuple[Any, ...], out: torch.Tensor) -> Any:
    """What eager's loops choose for dimensions of fewer than two elements, which fakes go by other rules for; None where they agree."""
    shape, found = tuple(out.shape), tuple(out.stride())
    operands = [value for argument, value in zip(op._schema.arguments, args) if str(argument.type) == "Tensor"]
    tensors = [value for value in operands if isinstance(value, torch.Tensor)]
    numbers = [n for t in (out, *tensors) for n in (*t.shape, *t.stride())]
    if not tensors or not all(type(n) is int for n in numbers) or (op not in _FORMULAS and not {0, 1} & set(shape)):
        return None
    alike = all(isinstance(value, torch.Tensor) and value.shape == out.shape for value in operands)
    if alike and (all(t.is_contiguous() for t in tensors) or all(t.stride() == tensors[0].stride() for t in tensors)):
        if tensors[0].is_contiguous() or torch._prims_common.is_non_overlapping_and_dense_or_false(tensors[0]):
            return None
    order = _loop_order(shape, [_expanded(t, shape) for t in tensors])
    wanted, running = _row_major([max(size, 1) for size in shape]), 1
    for dim in order if order != sorted(order, reverse=True) else ():
        wanted[dim] = running
        running *= shape[dim]
    settled = alike and op not in _FORMULAS and 0 not in shape
    if settled and any(n != 1 and a != b for n, a, b in zip(shape, wanted, found)):
        return None
    return None if tuple(wanted) == found else wanted


def _expanded(tensor: torch.Tensor, shape: tuple[int, ...]) -> list[int]:
    """The strides of a tensor that is repeated to this shape."""
    strides = [
        0 if size == 1 != wanted else step
        for size, step, wanted in zip(tensor.shape, tensor.stride(), shape[len(shape) - tensor.dim() :])
    ]
    return [0] * (len(shape) - tensor.dim()) + strides


def _loop_order(shape: tuple[int, ...], strides: list[Any]) -> list[int]:
    """Dimensions from the innermost loop to the outermost: by the first operand that tells two of them apart, as eager sorts them."""

    def compared(inner: int, outer: int) -> int:
        """1 where the two are the wrong way round, -1 where they are not, 0 where no operand says."""
        for steps in strides:
            if not steps[inner] or not steps[outer]:
                continue
            if steps[inner] != steps[outer]:
                return 1 if steps[inner] > steps[outer] else -1
            if shape[inner] > shape[outer]:
                return 1
        return 0

    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        moved = start
        for place in reversed(range(start)):
            found = compared(order[place], order[moved])
            if found < 0:
                break
            if found > 0:
                order[place], order[moved] = order[moved], order[place]
                moved = place
    return order


def _of_a_transform(argument: torch.Tensor, dim: int, out: torch.Tensor) -> Any:
    if None in map(hint, (*out.shape, *argument.stride())):
        return None
    batch = sorted((d for d in range(out.dim()) if d != dim), key=lambda d: -argument.stride(d))
    wanted, running = list(out.stride()), 1
    for d in (dim, *reversed(batch)):
        wanted[d] = running
        running = running * out.shape[d]
    return None if tuple(wanted) == tuple(out.stride()) else wanted


def _suggested(argument: torch.Tensor, out: torch.Tensor) -> Any:
    for rank, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if argument.dim() == rank and argument.is_contiguous(memory_format=form):
            return None
    return None if out.is_contiguous() else _row_major(out.shape)


def _row_major(shape: Any) -> list[Any]:
    strides: list[Any] = []
    running: Any = 1
    for size in reversed(shape):
        strides.insert(0, running)
        running = running * size
    return strides


def _sums_fast(
    weight: Any, indices: Any, offsets: Any, scale: Any = False, mode: int = 0, sparse: bool = False,
    weights: Any = None, include_last: bool = False, padding: int = -1,
) -> bool:  # fmt: skip
    plain = weights is None or weights.stride(0) == 1
    return weight.device.type == "cpu" and mode == 0 and weight.stride(1) == 1 and padding < 0 and plain
