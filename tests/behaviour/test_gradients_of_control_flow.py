"""Gradients of `cond`, `scan`, `map` and `while_loop` beside eager: which results have one, and which operands get one.

Torch's operators have one autograd function around all of their results. So a result has a gradient though nothing that it is made of has one, and an
operand gets zeros though no result depends on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import flambeau

Programs = dict[str, Callable[[Tensor, Tensor], Any]]
PROGRAMS: Programs = {
    "a carry that has no gradient at first": lambda x, w: scan(
        lambda c, x: ((c * w + x).tanh(), (c * 2).sin()), torch.zeros(3), x
    ),
    "one carry has a gradient by way of another": lambda x, w: scan(
        lambda c, x: ((c[0] * w + c[1], c[0].sin() + x), c[1] * 2), (torch.zeros(3), torch.zeros(3)), x
    ),
    "a carry that never has one": lambda x, w: scan(
        lambda c, x: ((c[0] * w, c[1] + 1), c[1] * x), (torch.ones(3), torch.zeros(3)), x
    ),
    "rows that nothing depends on": lambda x, w: scan(
        lambda c, x: (c + x.detach(), c * w), torch.zeros(3), x
    ),
    "a scan of what is detached": lambda x, w: scan(
        lambda c, x: (c + x.detach(), (c * 2).detach()), torch.zeros(3), x * w
    ),
    "a branch without a gradient": lambda x, w: torch.cond(
        x.sum() > 0, lambda x: x * w, lambda x: torch.ones_like(x) * 2, (x,)
    ),
    "a result of both branches without one": lambda x, w: torch.cond(
        x.sum() > 0, lambda x: (x * w, x.detach() * 3), lambda x: (x.sin(), x.detach().cos()), (x,)
    ),
    "a map of which a result has none": lambda x, w: map_over(lambda row: (row * w, row.detach() * 2), x),
    "a map of what is detached": lambda x, w: map_over(lambda row: (row.detach() * 2,), x)[0] * w,
}  # fmt: skip


def _outcome(call: Callable[[Tensor, Tensor], Any], is_wanted: bool) -> Any:
    torch.manual_seed(0)
    x, w = torch.randn(5, 3, requires_grad=is_wanted), torch.randn(3, requires_grad=True)
    results = torch.utils._pytree.tree_leaves(call(x, w))
    has = [result.requires_grad for result in results]
    loss = torch.stack([r.square().sum() for r, differentiable in zip(results, has, strict=True) if differentiable])
    leaves = [w, x] if is_wanted else [w]
    return results, has, torch.autograd.grad(loss.sum(), leaves, allow_unused=True)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("is_wanted", [True, False], ids=["of all", "of one"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, is_wanted: bool, dynamic: bool) -> None:
    """Results, which of them have a gradient, and the gradients; one graph."""
    compiled = flambeau.compile(PROGRAMS[name], fullgraph=True, dynamic=dynamic)
    found, wanted = _outcome(compiled, is_wanted), _outcome(PROGRAMS[name], is_wanted)
    assert found[1] == wanted[1]
    for ours, theirs in zip((*found[0], *found[2]), (*wanted[0], *wanted[2]), strict=True):
        assert (ours is None) == (theirs is None)
        torch.testing.assert_close(ours, theirs)
