"""Compare a compiled callable with eager: outputs, gradients of every parameter and input, mutations.

In: two results of the same structure. Out: nothing, or an assertion that names the first leaf that differs.
"""

from __future__ import annotations

import copy
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


def twin_of(model: nn.Module) -> nn.Module:
    """A deep copy with gradients cleared."""
    twin = copy.deepcopy(model)
    twin.zero_grad(set_to_none=True)
    return twin
