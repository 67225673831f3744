"""Operators of others whose formula for their gradients asks for values: one graph, in which they and their formula run as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau

from ..comparison import assert_same
from ..dynamic.counting import compilations

CALLS: list[str] = []


def _products(x: Tensor, w: Tensor, ends: Tensor) -> Tensor:
    """Rows up to each end by a matrix of their own."""
    CALLS.append("forward")
    out, start = x.new_zeros(x.shape[0], w.shape[2]), 0
    for number, end in enumerate(ends.tolist()):
        out[start:end] = x[start:end] @ w[number]
        start = end
    return out


def _formula(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, w, ends = ctx.saved_tensors
    grad_x, grad_w, start = torch.zeros_like(x), torch.zeros_like(w), 0
    for number, end in enumerate(ends.tolist()):
        grad_x[start:end] = grad[start:end] @ w[number].t()
        grad_w[number] = x[start:end].t() @ grad[start:end]
        start = end
    return grad_x, grad_w, None


def _raise(ctx: Any, grad: Tensor) -> Tensor:
    raise ArithmeticError("no formula")


@pytest.fixture(scope="module", autouse=True)
def library() -> Iterator[None]:
    """The operator, and a kin whose formula asks for nothing."""
    with torch.library._scoped_library("value_formulas", "FRAGMENT") as own:
        own.define("grouped(Tensor x, Tensor w, Tensor ends) -> Tensor")
        own.impl("grouped", _products, "CompositeExplicitAutograd")
        torch.library.register_fake(
            "value_formulas::grouped", lambda x, w, ends: x.new_empty(x.shape[0], w.shape[2]), lib=own
        )
        torch.library.register_autograd(
            "value_formulas::grouped",
            _formula,
            setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
            lib=own,
        )
        own.define("doubled(Tensor x) -> Tensor")
        own.impl("doubled", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_fake("value_formulas::doubled", torch.empty_like, lib=own)
        torch.library.register_autograd("value_formulas::doubled", lambda ctx, grad: grad * 2, lib=own)
        own.define("raising(Tensor x) -> Tensor")
        own.impl("raising", lambda x: x * 2, "CompositeExplicitAutograd")
        torch.library.register_fake("value_formulas::raising", torch.empty_like, lib=own)
        torch.library.register_autograd("value_formulas::raising", _raise, lib=own)
        yield


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.weights = nn.Linear(4, 6), nn.Parameter(torch.randn(3, 6, 5))

    def forward(self, x: Tensor, ends: Tensor, cast: bool = False) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16) if cast else nullcontext():
            hidden = torch.relu(self.first(x)).float()
            out = torch.ops.value_formulas.grouped(hidden, self.weights, ends)
            again = torch.ops.value_formulas.grouped((out.sin() @ torch.ones(5, 6)).float(), w=self.weights, ends=ends)
        return (out + again).square()


def _step(run: Any, model: nn.Module, x: Tensor, *rest: Any) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    result = run(x, *rest)
    result.mean().backward()
    found = [result.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]
    model.zero_grad()
    return found


@pytest.mark.parametrize("cast", [False, True])
def test_training_is_one_graph(cast: bool) -> None:
    """Results and gradients are eager's, of any number of rows and any ends."""
    torch.manual_seed(0)
    model = Experts()
    compiled = flambeau.compile(model, fullgraph=True, dynamic=True)
    for rows, ends in ((8, [2, 5, 8]), (8, [0, 8, 8]), (11, [3, 3, 10])):
        x, places = torch.randn(rows, 4), torch.tensor(ends)
        CALLS.clear()
        ours = _step(compiled, model, x, places, cast)
        assert CALLS == ["forward"] * 2
        assert_same(ours, _step(model, model, x, places, cast))


def test_gradients_have_gradients() -> None:
    """Where somebody asks for those, outside of what is compiled."""
    torch.manual_seed(0)
    model, ends = Experts(), torch.tensor([1, 3, 4])
    x = torch.randn(4, 4, requires_grad=True)

    def second(run: Any) -> tuple[Tensor, ...]:
        slopes = torch.autograd.grad(run(x, ends).sum(), [x, model.weights], create_graph=True)
        return torch.autograd.grad(sum(slope.square().sum() for slope in slopes), [x, model.weights])

    assert_same(second(flambeau.compile(model)), second(model))


def test_shapes_that_change_compile_twice() -> None:
    model = Experts()
    calls = [(torch.randn(rows, 4), torch.tensor([1, 2, rows])) for rows in (4, 6, 9)]
    assert compilations(lambda x, ends: model(x, ends), calls) == 2


def test_what_asks_for_no_values_is_an_operator_of_the_graph() -> None:
    """Without gradients, or with a formula that is traced."""
    seen: list[str] = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in gm.graph.nodes if node.op == "call_function")
        return gm.forward

    x, w, ends = torch.randn(4, 6), torch.randn(3, 6, 5), torch.tensor([1, 2, 4])
    function = flambeau.compile(
        lambda x: torch.ops.value_formulas.doubled(torch.ops.value_formulas.grouped(x, w, ends)), backend=backend
    )
    assert function(x).shape == (4, 5)
    assert any("grouped" in name and "leaf" not in name for name in seen)
    seen.clear()
    function(x.requires_grad_()).sum().backward()
    assert any("doubled" in name for name in seen) and not any(name == "value_formulas.grouped" for name in seen)


@pytest.mark.falls_back("no formula")
def test_a_formula_that_raises_does_so_in_the_backward() -> None:
    """As in eager: not where it is asked whether it wants values, and not in the forward."""
    compiled = flambeau.compile(lambda x: torch.ops.value_formulas.raising(x.sin()))
    x = torch.randn(3, requires_grad=True)
    result = compiled(x)
    assert torch.equal(result, x.sin() * 2)
    with pytest.raises(ArithmeticError, match="no formula"):
        result.sum().backward()
