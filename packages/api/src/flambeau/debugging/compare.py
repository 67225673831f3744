"""Whether two results are the same up to rounding: eager's and the compiled program's, with float64 as the judge.

In: results of the same structure. Out: "", or a sentence that names the first leaf that differs. A leaf that is not close to eager's is still right
where it is as near to the result in float64 as eager's is, up to a factor: eager's distance is one draw of its rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

#: How much farther than eager a result may be from the exact one.
FACTOR = 8.0
_TOLERANCES = {
    torch.float64: 1e-7,
    torch.float32: 1e-4,
    torch.complex128: 1e-7,
    torch.complex64: 1e-4,
    torch.bfloat16: 2e-2,
    torch.float16: 2e-3,
}


def difference(
    actual: Any,
    expected: Any,
    exact: Callable[[], Any] | None = None,
    *,
    tolerance: float | None = None,
    ignore_integers: bool = False,
) -> str:
    """What differs, in words; "" where nothing does.

    Args:
        exact: computes the same in float64; asked only where a leaf is not close.
        tolerance: relative and absolute; by the type of each leaf where it is None.
        ignore_integers: compare tensors of floats alone.
    """
    ours, ours_spec = pytree.tree_flatten(actual)
    theirs, theirs_spec = pytree.tree_flatten(expected)
    if ours_spec != theirs_spec:
        return f"the structure is {ours_spec}, not {theirs_spec}"
    truth: Sequence[Any] | None = None
    for number, (mine, wanted) in enumerate(zip(ours, theirs, strict=True)):
        words = _leaf(mine, wanted, tolerance, ignore_integers=ignore_integers)
        if not words:
            continue
        if exact is not None and words.is_close_call:
            truth = pytree.tree_leaves(exact()) if truth is None else truth
            if len(truth) == len(theirs) and _as_near(mine, wanted, truth[number], words.allowed):
                continue
        return f"result {number}: {words.text}"
    return ""


class _Words:
    """What differs; `is_close_call`: the values alone do, by more than `allowed`."""

    def __init__(self, text: str, allowed: float = 0.0, *, is_close_call: bool = False) -> None:
        self.text, self.allowed, self.is_close_call = text, allowed, is_close_call


def _leaf(mine: Any, wanted: Any, tolerance: float | None, *, ignore_integers: bool) -> _Words | None:
    if not isinstance(wanted, Tensor) or not isinstance(mine, Tensor):
        same = mine == wanted or (mine != mine and wanted != wanted)
        return None if same or (mine is None) == (wanted is None) is True else _Words(f"{mine!r} instead of {wanted!r}")
    for name in ("dtype", "shape", "device"):
        if getattr(mine, name) != getattr(wanted, name):
            return _Words(f"{name} {getattr(mine, name)} instead of {getattr(wanted, name)}")
    if wanted.layout is not torch.strided or wanted.numel() == 0:
        return None
    if not (wanted.is_floating_point() or wanted.is_complex()):
        if ignore_integers or torch.equal(mine, wanted):
            return None
        return _Words(f"{int((mine != wanted).sum())} of {wanted.numel()} elements are others")
    allowed = tolerance if tolerance is not None else _TOLERANCES.get(wanted.dtype, 0.1)
    distance = distances(mine, wanted)
    bound = allowed * (1 + magnitudes(wanted))
    if bool((distance <= bound).all()):
        return None
    return _Words(f"off by {float(distance.max()):.3g} where {allowed:.3g} is allowed", allowed, is_close_call=True)


def distances(mine: Tensor, wanted: Tensor) -> Tensor:
    """How far apart two tensors are, each element: 0 where both are nan or the same infinity, inf where only one is."""
    one, other = _wide(mine), _wide(wanted)
    same = (one == other) | (one.isnan() & other.isnan())
    return torch.where(same, 0.0, (one - other).abs().double()).nan_to_num(nan=math.inf, posinf=math.inf)


def magnitudes(tensor: Tensor) -> Tensor:
    """How large each element is; 0 for nan and infinities, beside which nothing is small."""
    return _wide(tensor).abs().double().nan_to_num(nan=0.0, posinf=0.0)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64)


def _as_near(mine: Tensor, wanted: Tensor, exact: Any, allowed: float) -> bool:
    """Whether ours is as near to the exact result as eager's."""
    if not isinstance(exact, Tensor) or exact.shape != wanted.shape:
        return False
    ours, theirs = (float(distances(value, exact).square().mean().sqrt()) for value in (mine, wanted))
    return ours <= FACTOR * theirs + allowed * 1e-2


def copies(values: Sequence[Any]) -> list[Any]:
    """Copies of inputs: in their strides, sharing memory as they do, leaves with gradients where they have them."""
    storages: dict[int, Tensor] = {}
    made: dict[int, Any] = {}
    return [made.setdefault(id(value), _copy(value, storages)) for value in values]


def _copy(value: Any, storages: dict[int, Tensor]) -> Any:
    if not isinstance(value, Tensor):
        return value
    plain = value.detach()
    if value.layout is not torch.strided or type(plain) is not Tensor:
        return plain.clone().requires_grad_(value.requires_grad)
    storage = plain.untyped_storage()
    with torch.no_grad():
        if storage._cdata not in storages:
            whole = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(storage)
            storages[storage._cdata] = whole.clone()
        own = storages[storage._cdata].untyped_storage()
        copy = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copy.set_(own, plain.storage_offset(), plain.shape, plain.stride())
    return copy.requires_grad_(value.requires_grad)


def widened(value: Any) -> Any:
    """A copy in float64 of a tensor of floats; anything else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().double().requires_grad_(value.requires_grad)
    if isinstance(value, Tensor) and value.is_complex():
        return value.detach().to(torch.complex128).requires_grad_(value.requires_grad)
    return value.detach().clone() if isinstance(value, Tensor) else value


def run(function: Callable[..., Any], inputs: Sequence[Any], *, forward_only: bool = False) -> Any:
    """Results of a call, what it left in its inputs, and gradients: everything that a caller can see.

    The gradients are those of a sum in which each element counts differently.
    """
    results = function(*inputs)
    tensors = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, Tensor)]
    gradients: list[Tensor | None] = []
    wanting = [value for value in inputs if isinstance(value, Tensor) and value.requires_grad and value.is_leaf]
    differentiable = [t for t in tensors if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    seen = pytree.tree_map(lambda leaf: leaf.detach().clone() if isinstance(leaf, Tensor) else leaf, results)
    if wanting and differentiable and not forward_only:
        weights = [torch.linspace(0.5, 1, t.numel(), device=t.device).view(t.shape).to(t.dtype) for t in differentiable]
        gradients = list(torch.autograd.grad(differentiable, wanting, weights, allow_unused=True))
        # What eager has no gradient for may have one of zeros where a graph uses it for another result.
        gradients = [torch.zeros_like(w) if g is None else g for g, w in zip(gradients, wanting, strict=True)]
    return seen, [value.detach() if isinstance(value, Tensor) else None for value in inputs], gradients
