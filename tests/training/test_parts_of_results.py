"""Losses of some of a model's results: what the others would give is left out, whatever it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau


def model(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    hidden = torch.relu(x @ w)
    logits = hidden @ w.t()
    return torch.nn.functional.mse_loss(logits, x), logits, hidden.log()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_part_of_the_results_has_gradients(backend: str, dynamic: bool) -> None:
    """The logarithm's own derivative is infinite where the hidden values are zeros."""
    compiled = flambeau.compile(model, backend=backend, dynamic=dynamic)
    for size, used in itertools.product((3, 5), ([0], [1], [0, 1], [2], [1, 2], [0, 1, 2])):
        found = []
        for run in (model, compiled):
            torch.manual_seed(size)
            x, w = (torch.randn(size, 4).requires_grad_(), torch.randn(4, 4).requires_grad_())
            results = run(x, w)
            tangents = [torch.ones_like(results[i]) for i in used]
            found.append(torch.autograd.grad([results[i] for i in used], [x, w], tangents))
        for theirs, ours in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
            assert ours.isfinite().all() or 2 in used


def fake_and_real(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return (x.exp() * x).sum(), (y.sin() * y).sum()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_losses_that_have_nothing_in_common_follow_each_other(backend: str) -> None:
    """Nothing of the graph is kept by hand."""
    compiled = flambeau.compile(fake_and_real, backend=backend)
    for order in ((0, 1), (1, 0)):
        x, y = torch.randn(3).requires_grad_(), torch.randn(3).requires_grad_()
        expected = torch.autograd.grad(fake_and_real(x, y), [x, y])
        losses = compiled(x, y)
        for place in order:
            losses[place].backward()
        torch.testing.assert_close([x.grad, y.grad], list(expected))
        with pytest.raises(RuntimeError, match="a second time"):
            losses[order[0]].backward()


class State(torch.nn.Module):
    def __init__(self, write: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.write = write
        self.state = torch.zeros(3)
        self.w = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.write(self.state, self.w)
        return x * x


@pytest.mark.falls_back("an input with a history is written, and a result does not depend on it")
@pytest.mark.parametrize("write", [Tensor.copy_, Tensor.add_, lambda state, w: state[:1].mul_(w[:1])])
def test_a_history_behind_a_state_is_none_of_the_results(write: Callable[[Tensor, Tensor], Any]) -> None:
    """From call to call it grows, and what the results of earlier calls came from is freed."""
    found = []
    for wrap in (lambda m: m, lambda m: flambeau.compile(m, backend="aot_eager")):
        model = State(write)
        run = wrap(model)
        x = torch.arange(3.0).requires_grad_()
        for _ in range(3):
            run(x * 2).sum().backward()
        run(x * 1)
        model.state.sum().backward()
        found.append([x.grad, model.w.grad, model.state.detach()])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.falls_back("an input with a history is written, and a result does not depend on it")
def test_a_history_without_a_derivative_is_none_of_another_written_input() -> None:
    """The one node of a graph would lead a backward of `b` to it."""

    def write(a: Tensor, b: Tensor) -> None:
        a.mul_(2)
        b.clamp_(1)

    x = torch.ones(3, requires_grad=True)
    b = x * 3
    flambeau.compile(write, backend="aot_eager")(x.unique() * 1, b)
    assert torch.autograd.grad(b.sum(), x)[0].tolist() == [3.0, 3.0, 3.0]
