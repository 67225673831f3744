"""Compare a compiled callable with eager: outputs, gradients of every parameter and input, mutations.

In: two results of the same structure. Out: nothing, or an assertion that names the first leaf that differs; or the relative
errors, for those who judge themselves (the benchmarks, the demo, tests of reduced precision).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def assert_same(actual: Any, expected: Any, *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """The same structure and types, close tensors of the same dtype, shape, stride kind and `requires_grad`."""
    actual_leaves, actual_spec = pytree.tree_flatten(actual)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert actual_spec == expected_spec
    for number, (ours, theirs) in enumerate(zip(actual_leaves, expected_leaves, strict=True)):
        if isinstance(theirs, Tensor):
            assert isinstance(ours, Tensor), f"leaf {number}: {type(ours)}"
            assert ours.requires_grad == theirs.requires_grad, f"leaf {number}: requires_grad"
            _assert_close(number, ours, theirs, rtol, atol)
        else:
            assert type(ours) is type(theirs), f"leaf {number}"
            assert ours == theirs or (ours != ours and theirs != theirs), f"leaf {number}: {ours!r} != {theirs!r}"


def _assert_close(number: int, ours: Tensor, theirs: Tensor, rtol: float, atol: float) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=rtol, atol=atol, equal_nan=True, msg=lambda message: f"leaf {number}: {message}"
    )


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    """Name -> gradient (None where there is none) of every parameter."""
    return {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def largest(tensors: Iterable[Tensor | None]) -> float:
    """The largest magnitude in any of the tensors; 0.0 for none."""
    return max((float(t.detach().abs().max()) for t in tensors if t is not None and t.numel()), default=0.0)


#: A gradient whose largest entry is below this share of the model's largest is taken for the noise of one that is truly zero.
NOISE_SHARE = 1e-3


def relative_error(actual: Tensor, expected: Tensor, floor: float = 0.0) -> float:
    """The largest difference, relative to the largest expected magnitude, which counts as `floor` at least.

    nan and infinity equal themselves; anywhere else they make the error infinite.
    """
    ours, theirs = actual.detach().double(), expected.detach().double()
    if ours.shape != theirs.shape:
        return math.inf
    if ours.numel() == 0:
        return 0.0
    difference = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, (ours - theirs).abs())
    error = float(difference.nan_to_num(nan=math.inf, posinf=math.inf).max())
    finite = theirs[theirs.isfinite()]
    scale = max(float(finite.abs().max()) if finite.numel() else 0.0, floor, 1e-30)
    return error / scale


def gradient_errors(actual: Mapping[str, Tensor | None], expected: Mapping[str, Tensor | None]) -> dict[str, float]:
    """Name -> `relative_error` of each gradient, with the model's largest gradient as the measure of what is noise.

    The true gradient of some parameters is zero (the key bias of an attention: softmax does not see it), so that what any
    engine computes for them is rounding noise. Their differences are held against `NOISE_SHARE` of the largest gradient of the
    whole model. A gradient that only one side has is an infinite error.
    """
    floor = NOISE_SHARE * largest(expected.values())
    errors = {}
    for name in {**actual, **expected}:
        ours, theirs = actual.get(name), expected.get(name)
        if ours is None or theirs is None:
            errors[name] = 0.0 if ours is theirs else math.inf
        else:
            errors[name] = relative_error(ours, theirs, floor)
    return errors


def twin_of(model: nn.Module) -> nn.Module:
    """A deep copy with gradients cleared."""
    twin = copy.deepcopy(model)
    twin.zero_grad(set_to_none=True)
    return twin
