"""Inverses of views: given a base and the new contents of one view of it, the new base.

In: a `Step`, the base and the new view contents (fake tensors), and `call`, which records an op. Out: the new base.
Ops whose inverse is not in the table go through `as_strided_scatter`, which is right for every strided view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import UnsupportedMutation
from .ops import short_name
from .overlap import folds_onto_itself
from .values import Step

aten = torch.ops.aten
Call = Callable[..., Any]


def _identity(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return new


def _reshape(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    try:
        return call(aten.view.default, new, list(base.shape))
    except (RuntimeError, ValueError):
        return call(aten._unsafe_view.default, call(aten.clone.default, new, memory_format=torch.contiguous_format),
                    list(base.shape))  # fmt: skip


def _permute(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    dims = [d % len(step.args[0]) for d in step.args[0]]
    inverse = [0] * len(dims)
    for position, dim in enumerate(dims):
        inverse[dim] = position
    return call(aten.permute.default, new, inverse)


def _transpose(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.transpose.int, new, *step.args)


def _t(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.t.default, new)


def _select(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.select_scatter.default, base, new, *step.args)


def _slice(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.slice_scatter.default, base, new, *step.args)


def _diagonal(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.diagonal_scatter.default, base, new, *step.args, **step.kwargs)


def _split(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    dim = (step.args[1] if len(step.args) > 1 else step.kwargs.get("dim", 0)) % base.dim()
    start = sum(part.shape[dim] for part in step.out[: step.item])
    return call(aten.slice_scatter.default, base, new, dim, start, start + new.shape[dim], 1)


def _unbind(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    dim = step.args[0] if step.args else step.kwargs.get("dim", 0)
    return call(aten.select_scatter.default, base, new, dim, step.item)


def _expand(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    if tuple(base.shape) == tuple(new.shape):
        return new
    if base.numel() == new.numel():
        return _reshape(call, step, base, new)
    raise UnsupportedMutation("a write goes through expand(): several elements share one memory location")


def _view_dtype(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    if any(isinstance(size, int) and size == 0 for size in new.shape):
        # Without elements strides are what they are: torch may not see another width through them.
        return base
    return call(aten.view.dtype, new, base.dtype)


def _view_as_real(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    # The parts of a complex number lie beside each other, which those of the new values need not.
    if not new.is_contiguous():
        new = call(aten.clone.default, new, memory_format=torch.contiguous_format)
    return call(aten.view_as_complex.default, new)


def _view_as_complex(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.view_as_real.default, new)


def _conj(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten._conj_physical.default, new)


def _neg_view(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return call(aten.neg.default, new)


def _strided(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor) -> Any:
    return _scatter_strided(call, step, base, new, step.source)


def _scatter_strided(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor, origin: torch.Tensor) -> Any:
    """`base` stands for `origin`; a copy of it starts at its own memory's beginning, whatever `base` is a view of."""
    view = step.result
    if folds_onto_itself(view):
        raise UnsupportedMutation(f"a write goes through {step.op}: several elements share one memory location")
    # An absolute view passes by the steps between: what they show as conjugate or negative it writes so.
    if (origin.dtype, origin.is_conj(), origin.is_neg()) != (view.dtype, view.is_conj(), view.is_neg()):
        raise UnsupportedMutation(f"a write goes through {step.op}, whose inverse is not known")
    copy = call(aten.clone.default, base)
    if tuple(copy.stride()) != tuple(origin.stride()):
        raise UnsupportedMutation(f"a write goes through {step.op} of a tensor whose layout changed or has gaps")
    offset = view.storage_offset() - origin.storage_offset()
    return call(aten.as_strided_scatter.default, copy, new, list(view.shape), list(view.stride()), offset)


_INVERSES: dict[str, Callable[..., Any]] = {
    "alias": _identity, "detach": _identity, "lift_fresh": _identity,
    "view": _reshape, "_reshape_alias": _reshape,
    "squeeze": _reshape, "unsqueeze": _reshape, "permute": _permute, "transpose": _transpose, "t": _t,
    "select": _select, "slice": _slice, "diagonal": _diagonal, "split": _split, "split_with_sizes": _split,
    "unbind": _unbind, "expand": _expand, "view_as_real": _view_as_real, "view_as_complex": _view_as_complex,
    "_conj": _conj, "_neg_view": _neg_view,
}  # fmt: skip


def is_absolute(step: Step) -> bool:
    """True when the view says where it lies in the storage, whatever tensor of it is given."""
    offset = step.args[2] if len(step.args) > 2 else step.kwargs.get("storage_offset")
    return is_strided(step.op) and offset is not None


def is_strided(op: Any) -> bool:
    """True for the view that is told in strides of the storage."""
    return short_name(op) == "as_strided"


def scatter_back(call: Call, step: Step, base: torch.Tensor, new: torch.Tensor, root: torch.Tensor) -> Any:
    """The base's contents after the view that `step` takes of it was overwritten with `new`.

    For an absolute view `base` holds the contents of the whole storage, which `root` shows.
    """
    if is_absolute(step):
        return _scatter_strided(call, step, base, new, root)
    name = short_name(step.op)
    if name == "view" and step.op._overloadname == "dtype":
        return _view_dtype(call, step, base, new)
    return _INVERSES.get(name, _strided)(call, step, base, new)
