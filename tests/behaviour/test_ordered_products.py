"""Products and attention under ``batch_invariant``: what takes their place gives eager's results, and rows that do not depend on others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import flambeau

OPTION = {"batch_invariant": True}


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return flambeau.compile(function, fullgraph=True, dynamic=False, options=OPTION)


@pytest.mark.parametrize("rows", [1, 3])
def test_every_kind_of_product(rows: int) -> None:
    torch.manual_seed(1)
    x, w, several = torch.randn(3, 5)[:rows], torch.randn(5, 4), torch.randn(3, 5, 4)[:rows]

    def function(x: Tensor, w: Tensor, several: Tensor) -> tuple[Tensor, ...]:
        return (
            x @ w,
            torch.addmm(w[0], x, w, beta=0.5, alpha=2),
            x @ w[:, 0],
            torch.addmv(x[:, 0], x, w[:, 1], beta=2),
            torch.dot(x[0], w[:, 2]),
            torch.bmm(x.unsqueeze(1), several),
            torch.baddbmm(w[0], x.unsqueeze(1), several, alpha=3),
        )

    for ours, theirs in zip(_compiled(function)(x, w, several), function(x, w, several), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_attention(causal: bool, dtype: torch.dtype) -> None:
    """With a mask that hides all keys of a row, or a causal one; its gradients too."""
    torch.manual_seed(2)
    given = [torch.randn(2, 2, 5, 8).to(dtype) for _ in range(3)]
    mask = None if causal else torch.tensor([[True, False, True, True, False]]).expand(5, 5).clone()
    if mask is not None:
        mask[3] = False

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=0.3)

    def found(function: Callable[..., Tensor], parts: list[Tensor]) -> list[Tensor]:
        leaves = [part.detach().clone().requires_grad_() for part in parts]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out.sin().sum(), leaves)]

    tolerance = {} if dtype is torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    whole = found(_compiled(function), given)
    for ours, theirs in zip(whole, found(function, given), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance)
    for ours, all_rows in zip(found(_compiled(function), [part[:1] for part in given]), whole, strict=True):
        assert torch.equal(ours.nan_to_num(), all_rows[:1].nan_to_num())


def test_functions_do_not_look_at_their_neighbours() -> None:
    """Lanes of a register are computed together where one of them needs the slow way; a single element is computed by itself."""
    torch.manual_seed(3)
    x = 2 * torch.randn(37)
    x[::5] *= 20000

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.sin(x),
            torch.cos(x),
            torch.sigmoid(x),
            x.abs() ** 2.3,
            torch.erf(x),
            torch.tanh(x),
            torch.log1p(x.abs()),
            torch.expm1(-x.abs()),
        )

    whole = _compiled(function)(x)
    for rows in (1, 3):
        for at in (0, 6):
            part = _compiled(function)(x[at : at + rows].clone())
            assert all(map(torch.equal, part, (one[at : at + rows] for one in whole)))


@pytest.mark.parametrize("dim", [0, 1, (0, 2)])
def test_sums_along_any_dimension(dim: Any) -> None:
    """The rows lie last, in the middle or first; one of them, or more than a register has."""
    torch.manual_seed(4)
    x = torch.randn(19, 40, 23)
    along = {0: 2, 1: 0, (0, 2): 1}[dim]
    left = 1 if dim == 0 else 0

    def function(x: Tensor) -> tuple[Tensor, ...]:
        return x.sum(dim), (x * 3).exp().mean(dim), x.std(dim), x.cumsum(1 if dim == 0 else 2)

    whole = _compiled(function)(x)
    rows = _compiled(function)(x.narrow(along, 0, 1).clone())
    for one, full in zip(rows[:3], whole[:3], strict=True):
        assert torch.equal(one, full.narrow(left, 0, 1))
