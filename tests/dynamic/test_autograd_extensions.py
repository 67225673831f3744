"""`autograd.Function` and activation checkpointing inside compiled code, with sizes that change: gradients equal to eager."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from .counting import compilations_with_gradients


class OddSquare(torch.autograd.Function):
    """A square with a gradient that differs from the true one, so that skipping `backward` would show."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 3 * grad * x


def test_an_autograd_function_keeps_its_own_backward() -> None:
    """The gradient is the one that `backward` defines."""
    compilations_with_gradients(lambda x: OddSquare.apply(x + 1).sin(), [(torch.randn(n),) for n in (3, 4, 5)])


def test_checkpoint() -> None:
    """Recomputed activations give the same gradients of the inputs."""
    layer = nn.Linear(4, 4)

    def run(x: Tensor) -> Tensor:
        return checkpoint(lambda v: layer(v).relu().sin(), x, use_reentrant=False)

    compilations_with_gradients(run, [(torch.randn(n, 4),) for n in (3, 4, 5)])
