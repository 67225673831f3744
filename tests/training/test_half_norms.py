"""Norms of half inputs under float32 weights: gradients as near to the exact ones as eager's, whose kernels keep float32 statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from tests.comparison import relative_error

#: Name -> the function, the shape of its input.
NORMS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...]]] = {
    "layer": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (3, 4)),
    "group": (lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 5)),
    "batch": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (6, 4, 5)),
    "instance": (lambda x, w, b: F.instance_norm(x, None, None, w, b), (2, 4, 5)),
}


def _outcome(function: Callable[..., Tensor], leaves: list[Tensor], tangent: Tensor) -> list[Any]:
    leaves = [leaf.clone().requires_grad_() for leaf in leaves]
    result = function(*leaves)
    return [result, *torch.autograd.grad(result, leaves, tangent.to(result.dtype))]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NORMS)
def test_gradients_are_as_near_as_eagers(name: str, dtype: torch.dtype, backend: str) -> None:
    """A mean far from zero, beside which a rounded one loses the deviations."""
    function, shape = NORMS[name]
    leaves = [(torch.randn(shape) * 3 + 100).to(dtype), torch.rand(4) + 0.5, torch.randn(4)]
    tangent = torch.randn(shape)
    exact = _outcome(function, [leaf.double() for leaf in leaves], tangent)
    theirs = _outcome(function, leaves, tangent)
    ours = _outcome(flambeau.compile(function, backend=backend), leaves, tangent)
    for mine, wanted, true in zip(ours, theirs, exact, strict=True):
        assert mine.dtype is wanted.dtype
        assert relative_error(mine, true) <= 2 * relative_error(wanted, true) + 1e-3
