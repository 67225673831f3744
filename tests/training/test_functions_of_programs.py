"""`autograd.Function`s of programs: what their contexts hold, what they draw, and what they do to gradients that come in or do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau_autograd import UnsupportedDoubleBackward
from tests.comparison import assert_same


class Masked(torch.autograd.Function):
    """Its mask is an attribute of the context."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.mask = torch.rand_like(x) > 0.5
        return x * x * ctx.mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.mask * 2 * ctx.saved_tensors[0]


class Scaled(torch.autograd.Function):
    """Its context holds a result, which has a history, in containers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        scale = torch.rand_like(x)
        result = x.exp() * scale
        ctx.held = {"scales": [(scale, 2)], "result": result}
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        ((_, two),) = ctx.held["scales"]
        return grad * ctx.held["result"] * two / 2


class Drawing(torch.autograd.Function):
    """Its backward draws."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * torch.rand_like(grad)


class Clipped(torch.autograd.Function):
    """Its backward is not linear."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return (grad * 2).clamp(-1, 1)


class Told(torch.autograd.Function):
    """Its backward is told which gradients are absent."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: Tensor | None, second: Tensor | None) -> Tensor | None:
        return second if first is None else first * 5


def leaf() -> Tensor:
    return torch.linspace(-1.1, 1.2, 12, dtype=torch.float64).view(3, 4).requires_grad_()


def derivatives(run: Callable[[Tensor], Tensor]) -> list[Tensor]:
    torch.manual_seed(0)
    x = leaf()
    found = [run(x)]
    for _ in range(3):
        found += torch.autograd.grad(found[-1].square().sum(), x, create_graph=True)
    return [*found, torch.rand(2)]


@pytest.mark.parametrize("function", [Masked, Scaled])
@pytest.mark.parametrize("before", [lambda x: x, lambda x: (x * 2, print(end=""))[0]], ids=["first", "after a break"])
def test_derivatives_of_what_a_context_holds(function: Any, before: Callable[[Tensor], Tensor]) -> None:
    """The replay draws anew, and has nothing in the place of what is gone."""

    def run(x: Tensor) -> Tensor:
        return function.apply(before(x)).sin()

    assert_same(derivatives(flambeau.compile(run)), derivatives(run))


@pytest.mark.falls_back("the backward draws random numbers")
def test_a_backward_that_draws() -> None:
    """Once, where a gradient comes; the next derivative has the same numbers."""

    def run(x: Tensor) -> Tensor:
        return Drawing.apply(x).sin() * x

    assert_same(derivatives(flambeau.compile(run)), derivatives(run))


def test_a_backward_that_is_not_linear() -> None:
    """What comes to its result and to its gradient would have to be added up first."""

    def run(x: Tensor) -> Tensor:
        return Clipped.apply(x.sin()) * x

    gradients = []
    for function in (flambeau.compile(run), run):
        x = leaf()
        # Nothing leads from these tangents back to the function.
        gradients.append(torch.autograd.grad(function(x).sum(), x, create_graph=True))
        gradients[-1] += torch.autograd.grad(gradients[-1][0].sin().sum(), x)
    assert_same(*gradients)
    with pytest.raises(UnsupportedDoubleBackward, match="not linear in what comes in"):
        derivatives(flambeau.compile(run))


@pytest.mark.falls_back("which of its results have a gradient")
def test_a_backward_that_is_told_what_is_absent() -> None:
    for place in (0, 1):
        ours, theirs = leaf(), leaf()
        flambeau.compile(lambda x: Told.apply(x))(ours)[place].sum().backward()
        Told.apply(theirs)[place].sum().backward()
        assert_same(ours.grad, theirs.grad)


def test_a_backward_that_is_told_of_results_that_go_together() -> None:
    """They always have a gradient together, or nobody reads the other one."""
    for run in (lambda x: Told.apply(x)[1].sin(), lambda x: torch.cat(Told.apply(x)).sin()):
        ours, theirs = leaf(), leaf()
        flambeau.compile(run)(ours).sum().backward()
        run(theirs).sum().backward()
        assert_same(ours.grad, theirs.grad)
