"""Ops that the general rules would record wrongly: writes that their schema does not tell, results in other types than fakes say.

A table overload -> `rule(recorder, func, args, kwargs)`, those for lists of tensors included; `register` refuses a second rule for the same overload.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..errors import UnsupportedMutation
from .foreach import RULES
from .predictions import is_plain

aten = torch.ops.aten
SpecialRule = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
SPECIAL: dict[OpOverload, SpecialRule] = dict(RULES)


def register(*ops: OpOverload) -> Callable[[SpecialRule], SpecialRule]:
    """Decorator: `rule` handles `ops`."""

    def add(rule: SpecialRule) -> SpecialRule:
        for op in ops:
            if op in SPECIAL:
                raise ValueError(f"two special rules for {op}")
            SPECIAL[op] = rule
        return rule

    return add


def _with_statistics(recorder: Any, source: Any, parameters: Any, norm: Callable[[Any], Any]) -> Any:
    """`norm` of `source`: a CPU kernel keeps the statistics of a half input in its parameters' float32, fakes round them to the half type."""
    half = source.device.type == "cpu" and source.dtype in (torch.bfloat16, torch.float16)
    if not half or all(p is None or p.dtype is not torch.float32 for p in parameters):
        return norm(source)
    out, *statistics = norm(recorder.call(aten._to_copy.default, source, dtype=torch.float32))
    return recorder.call(aten._to_copy.default, out, dtype=source.dtype), *statistics


@register(aten._efficientzerotensor.default)
def zeros_without_memory(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What torch computes of such zeros it computes above the recorder; who reads their memory in a graph reads zeros."""
    out = func(*args, **kwargs)
    told = {"dtype": out.dtype, "device": out.device}
    recorder.fresh(out, recorder.add_node(aten.full.default, (recorder.operands(list(out.shape)), 0), told, out))
    return out


@register(aten.mul.Scalar, aten.div.Scalar)
def scaled(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Kernels hand a number to the form for tensors, which makes zeros without memory of such zeros, whatever the number."""
    if not args[0]._is_zerotensor():
        return recorder.without_special(func, *args, **kwargs)
    like = func(*args, **kwargs)
    return recorder.call(aten._efficientzerotensor.default, list(like.shape), dtype=like.dtype, device=like.device)


@register(aten.dropout.default)
def dropout(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Where nothing is dropped the kernel gives its argument back; torch's formula, which inference mode leads to, copies it."""
    source, p, train = args
    return recorder.without_special(func, *args, **kwargs) if train and p != 0 else source


@register(torch.ops.prims.scalar_tensor.default)
def scalar_tensor(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A number as formulas of torch take it: a kernel rounds it to its type, and what is too large is infinite."""
    value, dtype = args[0], kwargs.get("dtype")
    if type(value) is float and dtype is not None and dtype.is_floating_point and abs(value) > torch.finfo(dtype).max:
        args = (math.copysign(math.inf, value), *args[1:])
    return recorder.without_special(func, *args, **kwargs)


@register(aten.native_layer_norm.default)
def native_layer_norm(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Layer norm, with statistics as precise as the kernel's."""
    return _with_statistics(
        recorder, args[0], args[2:4], lambda x: recorder.without_special(func, x, *args[1:], **kwargs)
    )


@register(aten.native_group_norm.default)
def native_group_norm(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Group norm, with statistics as precise as the kernel's."""
    return _with_statistics(
        recorder, args[0], args[1:3], lambda x: recorder.without_special(func, x, *args[1:], **kwargs)
    )


def _batch_norm(recorder: Any, args: tuple[Any, ...], training: bool, momentum: Any, eps: Any) -> Any:
    source, *rest = args
    return _with_statistics(
        recorder, source, rest, lambda x: _functional_batch_norm(recorder, (x, *rest), training, momentum, eps)
    )


def _functional_batch_norm(recorder: Any, args: tuple[Any, ...], training: bool, momentum: Any, eps: Any) -> Any:
    source, weight, bias, mean, variance = args
    if not training or mean is None:
        if mean is None:
            return recorder.call(aten._native_batch_norm_legit.no_stats, source, weight, bias, training, momentum, eps)
        return recorder.call(
            aten._native_batch_norm_legit_functional.default,
            source, weight, bias, mean, variance, False, momentum, eps,
        )[:3]  # fmt: skip
    out, save_mean, save_rstd, new_mean, new_variance = recorder.call(
        aten._native_batch_norm_legit_functional.default,
        source, weight, bias, mean, variance, True, momentum, eps,
    )  # fmt: skip
    recorder.mutations.write(mean, new_mean)
    recorder.mutations.write(variance, new_variance)
    return out, save_mean, save_rstd


@register(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def native_batch_norm(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Batch norm: the running statistics are written although `native_batch_norm`'s schema does not say so."""
    return _batch_norm(recorder, args[:5], args[5], args[6], args[7])


@register(aten.rrelu_with_noise.default)
def rrelu_with_noise(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """It fills its second argument with the slopes that it draws; its functional twin returns them."""
    out, noise = recorder.call(aten.rrelu_with_noise_functional.default, *args, **kwargs)
    recorder.mutations.write(args[1], recorder.mutations.match_layout(args[1], noise))
    return out if is_plain(out) else recorder.call(aten.clone.default, out, memory_format=torch.contiguous_format)


#: Whole numbers up to this power of two, and their sums with draws below it, are exact in the type.
_EXACT_BITS = {
    torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53,
    torch.uint8: 7, torch.int8: 6, torch.int16: 14, torch.int32: 30, torch.int64: 62,
}  # fmt: skip


@register(getattr(aten.random_, "from"))
def random_between(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Draws between two numbers are draws below their difference, moved: no graph module can print an overload that is named `from`."""
    target, low, high = args
    known = target.dtype in _EXACT_BITS and type(low) is int and type(high) is int
    most = 2 ** _EXACT_BITS.get(target.dtype, 0)
    if not known or not (abs(low) <= most and low < high <= most and high - low <= most):
        raise UnsupportedMutation(f"{func} of {target.dtype} between {low} and {high} is not moved exactly")
    recorder.call(aten.random_.to, target, high - low, **kwargs)
    return recorder.call(aten.add_.Scalar, target, low)


@register(aten._batch_norm_with_update.default)
def batch_norm_with_update(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The form that says that it writes; it returns a reserve buffer as well."""
    *results, new_mean, new_variance = recorder.call(aten._batch_norm_with_update_functional.default, *args, **kwargs)
    recorder.mutations.write(args[3], new_mean)
    recorder.mutations.write(args[4], new_variance)
    return tuple(results)


@register(aten.cudnn_batch_norm.default)
def cudnn_batch_norm(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The cuDNN form returns a reserve buffer too; the plain backward does not need it."""
    results = _batch_norm(recorder, args[:5], args[5], args[6], args[7])
    reserve = recorder.call(aten.empty.memory_format, [0], dtype=torch.uint8, device=args[0].device)
    return (*results, reserve)


@register(aten.cudnn_batch_norm_backward.default)
def cudnn_batch_norm_backward(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Recorded as the plain batch-norm backward in training mode."""
    source, grad, weight, mean, variance, save_mean, save_rstd, eps, _ = args
    return recorder.call(
        aten.native_batch_norm_backward.default,
        grad, source, weight, mean, variance, save_mean, save_rstd, True, eps, [True, weight is not None, weight is not None],
    )  # fmt: skip


@register(aten.mkldnn_rnn_layer_backward.default)
def recurrent_layer_backward(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradients of both biases are equal: two tensors as the kernel gives them, where fakes are one."""
    out = list(recorder.without_special(func, *args, **kwargs))
    if isinstance(out[3], torch.Tensor):
        out[4] = recorder.call(aten.clone.default, out[3])
    return tuple(out)


@register(aten.mul.Tensor)
def product(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In a backward, a mask times a gradient over the mask's sum is how torch shares a gradient out on fakes; a CPU kernel fills zeros with it,
    also with nan. Other masks are multiplied with on real tensors too."""
    mask, share = args
    if not recorder.backward or mask.dtype is not torch.bool or share.dim() or mask.device.type != "cpu":
        return recorder.without_special(func, mask, share)
    divided = recorder.node_of(share)
    total = divided.args[1] if divided.target is aten.div.Tensor else None
    if (
        not isinstance(total, Node)
        or total.target is not aten.sum.default
        or total.args[0] is not recorder.node_of(mask)
    ):
        return recorder.without_special(func, mask, share)
    zeros = recorder.call(aten.new_zeros.default, share, mask.shape)
    filled = recorder.call(aten.masked_fill.Tensor, zeros, mask, share)
    return recorder.mutations.match_layout(zeros, filled)


@register(aten.prod.default, aten.prod.dim_int)
def product_of_all(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Noted: its gradient is another formula on fakes, which agrees with the kernels' only where nothing was written since."""
    out = recorder.without_special(func, *args, **kwargs)
    if recorder.differentiates and not recorder.backward:
        recorder.unchecked += [
            ("ProdBackward", cell, cell.version) for cell in (recorder.value_of(part).cell for part in (args[0], out))
        ]
    return out


@register(aten._unsafe_view.default)
def unsafe_view(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Noted: it has its operand's memory, but a version of its own, so what is saved of it may be written through the operand (`torch.kron`)."""
    if recorder.differentiates and not recorder.backward:
        cell = recorder.value_of(args[0]).cell
        recorder.unchecked.append(("UnsafeViewBackward", cell, cell.version))
    return recorder.without_special(func, *args, **kwargs)


@register(aten.add.Tensor)
def total(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """In a backward it may be the engine that adds."""
    if recorder.sums is not None and not kwargs and recorder.sums.is_of_engine(args[1]):
        return recorder.sums.add(func, *args)
    return recorder.without_special(func, *args, **kwargs)


@register(aten.as_strided_copy.default)
def strided_copy(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy of what a view in strides shows."""
    args = recorder.adopt_tree(args)
    recorder.mutations.refuse_beside(args[0], aten.as_strided.default(*args, **kwargs))
    return recorder.without_special(func, *args, **kwargs)


@register(aten.as_strided_scatter.default)
def strided_scatter(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy of all the memory, in which a view in strides is overwritten."""
    args = recorder.adopt_tree(args)
    recorder.mutations.refuse_beside(args[0], aten.as_strided.default(args[0], *args[2:], **kwargs))
    return recorder.without_special(func, *args, **kwargs)
