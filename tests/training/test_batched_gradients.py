"""The backward of a compiled call under `vmap`, which gives it gradients that are no plain memory: kernels run once for each sample."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

import flambeau

from ..comparison import assert_same

TAKEN = {
    "batched": lambda u, v, a, b, e: torch.autograd.grad((u, v), (a, b), (e, 2 * e), is_grads_batched=True),
    "of one result": lambda u, v, a, b, e: torch.autograd.grad(
        v, (a, b), e, is_grads_batched=True, materialize_grads=True
    ),
    "no samples": lambda u, v, a, b, e: vmap(lambda t: torch.autograd.grad(v, a, t))(e[:0]),
    "graph kept": lambda u, v, a, b, e: [
        torch.autograd.grad(v, a, e, is_grads_batched=True, retain_graph=kept) for kept in (True, False)
    ],
    "vmap": lambda u, v, a, b, e: vmap(lambda t: torch.autograd.grad((u, v), (a, b), (t, t * 2)))(e),
    "other dimensions": lambda u, v, a, b, e: vmap(lambda t: torch.autograd.grad(u, a, t)[0], in_dims=2, out_dims=1)(
        e[:3]
    ),
    "vmap in vmap": lambda u, v, a, b, e: vmap(vmap(lambda t: torch.autograd.grad(v, a, t, retain_graph=True)))(
        torch.stack([e, 2 * e])
    ),
    "batched in vmap": lambda u, v, a, b, e: vmap(
        lambda t: torch.autograd.grad(u, a, torch.stack([t, -t]), is_grads_batched=True, retain_graph=True)
    )(e),
}


def two_results(a, b):
    return a.sin() * b, (a @ b).exp()


@pytest.mark.parametrize("how", TAKEN)
def test_gradients_under_vmap(how):
    """As of the same program in eager."""
    generator = torch.Generator().manual_seed(0)
    given = [torch.rand(3, 3, generator=generator) for _ in range(2)]
    tangents = torch.randn(5, 3, 3, generator=generator)
    seen = []
    for function in (two_results, flambeau.compile(two_results)):
        a, b = (value.clone().requires_grad_() for value in given)
        seen.append(TAKEN[how](*function(a, b), a, b, tangents))
    assert_same(seen[1], seen[0], strides=False)


def test_the_graph_is_freed_after_the_last_sample():
    """A second backward raises eager's error."""
    a = torch.rand(3).requires_grad_()
    result = flambeau.compile(torch.exp)(a)
    torch.autograd.grad(result, a, torch.eye(3), is_grads_batched=True)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(result, a, torch.eye(3), is_grads_batched=True)
