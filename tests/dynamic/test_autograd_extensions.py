"""`autograd.Function` and activation checkpointing inside compiled code, with sizes that change: gradients equal to eager."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

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
    """The gradient is the one that `backward` defines, and the call is part of the graph: one for a size, one for all others."""
    assert (
        compilations_with_gradients(lambda x: OddSquare.apply(x + 1).sin(), [(torch.randn(n),) for n in (3, 4, 5)]) == 2
    )


class TwoResults(torch.autograd.Function):
    """The newer form, with `setup_context`, a number among the arguments and two results."""

    @staticmethod
    def forward(x: Tensor, y: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        return x * y * scale, x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, y, ctx.scale = inputs
        ctx.save_for_backward(x, y)

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return first * y * ctx.scale * 2 + second, (first * x if ctx.needs_input_grad[1] else None), None


def test_an_autograd_function_with_setup_context() -> None:
    """Both results have the gradients of the user's `backward`."""
    calls = [(torch.randn(n), torch.randn(n)) for n in (3, 4, 5)]
    assert compilations_with_gradients(lambda x, y: sum(TwoResults.apply(x * 2, y, 3.0)), calls) == 2


RUNS: list[int] = []


class Counting(torch.autograd.Function):
    """Has an effect, so that it cannot be part of a graph."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        RUNS.append(1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        RUNS.append(2)
        return grad * 7


def test_an_autograd_function_with_effects_runs_in_plain_python() -> None:
    """Its effects happen once a call, in the forward and in the backward."""
    RUNS.clear()
    compilations_with_gradients(lambda x: Counting.apply(x + 1).sin(), [(torch.randn(3),) for _ in range(3)])
    assert RUNS == [1, 1, 2, 2] * 3


def test_checkpoint() -> None:
    """Recomputed activations give the same gradients of the inputs."""
    layer = nn.Linear(4, 4)

    def run(x: Tensor) -> Tensor:
        return checkpoint(lambda v: layer(v).relu().sin(), x, use_reentrant=False)

    assert compilations_with_gradients(run, [(torch.randn(n, 4),) for n in (3, 4, 5)]) == 2


def test_checkpoint_with_dropout() -> None:
    """Random numbers are drawn once: the backward uses the mask of the forward."""
    layer = nn.Linear(4, 4)
    recorder = Recorder()

    def run(x: Tensor) -> Tensor:
        return checkpoint(lambda v: torch.nn.functional.dropout(layer(v).sin(), 0.5), x, use_reentrant=False)

    compiled = compile_recorded(run, recorder)
    x = torch.ones(8, 4, requires_grad=True)
    y = compiled(x)
    (grad,) = torch.autograd.grad(y.sum(), layer.bias)
    kept = (y != 0).to(y.dtype)
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(grad, (kept * 2 * layer(x).cos()).sum(0))
    assert len(recorder.graphs) == 1
