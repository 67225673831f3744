"""Checks that torch makes on real tensors only: on fakes the same functions leave them out.

In: a call of the captured graph, before it is made. Out: nothing; checks of values are recorded as asserts in front of it, with eager's
words, and a call that eager refuses for its shapes, or does in shared memory, is left to eager, as is one of which eager refuses the gradient. Found by running what raises in eager for
the values of a tensor: the other functions check inside an op, or by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import UnsupportedGraph
from ..functional.overlap import folds_onto_itself

_SHARED = "a part of a tensor is replaced of which elements share memory"


def _require(condition: Tensor, message: str) -> None:
    with torch.no_grad():
        torch.ops.aten._assert_async.msg(condition.all(), message)


def _one_hot(tensor: Any, num_classes: Any = -1) -> None:
    _require(tensor >= 0, "Class values must be non-negative.")
    if not (isinstance(num_classes, int) and num_classes < 0):
        _require(tensor < num_classes, "Class values must be smaller than num_classes.")


def _condition(condition: Any, message: Any = None) -> None:
    """`torch._check` of numbers: what captured the graph says it in other words, where it fails."""
    if isinstance(condition, torch.SymBool):
        torch.ops.aten._assert_scalar.default(condition, f"the program was captured for numbers with {condition}")


def _quantile(name: str) -> Callable[..., None]:
    def check(input: Any, q: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(q, Tensor) and q.device.type == "cpu":
            _require((q >= 0).logical_and(q <= 1), f"{name}() q values must be in the range [0, 1]")

    return check


def _index_add(input: Any, dim: Any, index: Any, source: Any, **more: Any) -> None:
    own, other = list(input.shape), list(source.shape)
    if own and (
        len(own) != len(other) or any(_differ(*pair) for d, pair in enumerate(zip(own, other)) if d != dim % len(own))
    ):
        raise UnsupportedGraph("index_add is given a source of another shape")


def _replaced_part(input: Any, *args: Any, **kwargs: Any) -> None:
    if _is_spread(input) or folds_onto_itself(input):
        # Eager's copy may keep the memory that elements share, by torch's version, and then one write shows in others.
        raise UnsupportedGraph(_SHARED)


def _replaced_diagonal(input: Any, *args: Any, **kwargs: Any) -> None:
    if folds_onto_itself(input) and not _is_spread(input):
        raise UnsupportedGraph(_SHARED)


def _huber_loss(input: Any, target: Any, *args: Any, **kwargs: Any) -> None:
    if input.dtype != target.dtype and _differentiates(input, target):
        raise UnsupportedGraph("eager refuses the gradient of huber_loss for operands of two types")


def _pixels(input: Any, *args: Any, **kwargs: Any) -> None:
    if _differentiates(input) and any(isinstance(size, int) and size == 0 for size in input.shape):
        raise UnsupportedGraph("eager refuses the gradient of a pixel shuffle of no elements")


def _differentiates(*tensors: Any) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _is_spread(tensor: Any) -> bool:
    """Whether a dimension repeats the same memory, as `expand` makes it."""
    return any(
        isinstance(stride, int) and stride == 0 and not (isinstance(size, int) and size <= 1)
        for size, stride in zip(tensor.shape, tensor.stride())
    )


def _differ(size: Any, other: Any) -> bool:
    return isinstance(size, int) and isinstance(other, int) and size != other


#: What a graph calls, as a function or by the name of a method -> its checks, called with the same arguments.
CHECKS: dict[Any, Callable[..., None]] = {
    torch._check: _condition,
    torch.nn.functional.one_hot: _one_hot,
    **dict.fromkeys((torch.index_add, "index_add", "index_add_"), _index_add),
    **dict.fromkeys((torch.slice_scatter, "slice_scatter", torch.select_scatter, "select_scatter"), _replaced_part),
    **dict.fromkeys((torch.as_strided_scatter, "as_strided_scatter"), _replaced_part),
    **dict.fromkeys((torch.diagonal_scatter, "diagonal_scatter"), _replaced_diagonal),
    **dict.fromkeys((torch.nn.functional.huber_loss, torch._C._nn.huber_loss), _huber_loss),
    **dict.fromkeys((torch.pixel_shuffle, torch.pixel_unshuffle), _pixels),
    **{key: _quantile("quantile") for key in (torch.quantile, "quantile")},
    **{key: _quantile("nanquantile") for key in (torch.nanquantile, "nanquantile")},
}


def record_checks(target: Any, args: Any, kwargs: Any) -> None:
    """Record what eager would look at before it computes `target`."""
    check = CHECKS.get(target)
    if check is not None:
        check(*args, **kwargs)
