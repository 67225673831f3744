"""Losses of some of a model's results: what the others would give is left out, whatever it is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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


def test_hooks_of_an_input_run_where_the_engine_comes_to_it() -> None:
    def calls_of(function: Callable[..., Any]) -> list[Any]:
        calls: list[Any] = []
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        for name, leaf in (("x", x), ("y", y)):
            leaf.register_hook(lambda grad, name=name: calls.append((name, grad)))
            leaf.register_post_accumulate_grad_hook(lambda leaf, name=name: calls.append((name, leaf.grad.sum())))
        first, second = function(x, y)
        first.backward(retain_graph=True)
        second.backward(retain_graph=True)
        (first + second).backward()
        return calls

    assert str(calls_of(flambeau.compile(fake_and_real))) == str(calls_of(fake_and_real))


def shared_and_own(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
    shared = (x * y).exp()
    return shared * z, shared + 1, (z * z).sum(), y * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_any_losses_in_any_order(backend: str) -> None:
    """In one run of the engine or several, for all inputs or some, with an error of a hook before, differentiable again."""
    compiled = flambeau.compile(shared_and_own, backend=backend)

    def outcome(function: Callable[..., Any], used: tuple[int, ...], wanted: tuple[int, ...], twice: bool) -> Any:
        leaves = [torch.arange(1.0, 4.0).mul_(0.1 * n).requires_grad_() for n in (1, 2, 3)]
        inputs = [leaf * 1 for leaf in leaves]
        results = function(*inputs)
        handle = results[used[0]].register_hook(_raising)
        with pytest.raises(ArithmeticError):
            torch.autograd.grad(sum(results[i].sum() for i in used), leaves, retain_graph=True, allow_unused=True)
        handle.remove()
        ask = [leaves[i] for i in wanted]
        loss = sum(results[i].sum() * (i + 2) for i in used)
        try:
            grads = torch.autograd.grad(loss, ask, create_graph=twice, retain_graph=True, allow_unused=True)
            if twice:
                grads += torch.autograd.grad(
                    sum((g.sum() for g in grads if g is not None), leaves[0].sum()), leaves, allow_unused=True
                )
            grads += torch.autograd.grad(results[1].sum() + results[3].sum(), leaves, allow_unused=True)
        except RuntimeError as error:
            return str(error).partition(".")[0]
        return grads

    for used, wanted, twice in itertools.product(
        ((0,), (2,), (3,), (0, 2), (1, 3), (0, 1, 2, 3)), ((0, 1, 2), (2,), (0,)), (False, True)
    ):
        theirs, ours = (outcome(function, used, wanted, twice) for function in (shared_and_own, compiled))
        assert isinstance(ours, type(theirs)), (used, wanted, twice, theirs, ours)
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            for their, our in zip(theirs, ours, strict=True):
                assert (their is None) == (our is None), (used, wanted, twice)
                if their is not None:
                    torch.testing.assert_close(our, their)


def _raising(grad: Tensor) -> None:
    raise ArithmeticError


def test_losses_in_two_threads() -> None:
    """Each thread's gradients are those of its own loss."""
    x, y, z = (torch.arange(1.0, 4.0).requires_grad_() for _ in range(3))
    results = flambeau.compile(shared_and_own, backend="aot_eager")(x, y, z)
    expected = [torch.autograd.grad(r.sum(), [y, z], retain_graph=True, allow_unused=True) for r in results]

    def differentiate(place: int) -> list[Any]:
        return [
            torch.autograd.grad(results[place].sum(), [y, z], retain_graph=True, allow_unused=True) for _ in range(50)
        ]

    with ThreadPoolExecutor(2) as pool:
        for found, wanted in zip(pool.map(differentiate, range(4)), expected):
            for grads in found:
                assert all(a is b is None or torch.equal(a, b) for a, b in zip(grads, wanted))


def test_an_op_on_lists_leads_to_what_has_no_derivative() -> None:
    """Its node in eager is one for all members."""

    def negated(x: Tensor, y: Tensor) -> Tensor:
        return torch._foreach_neg([x, y])[1]

    compiled = flambeau.compile(negated, backend="aot_eager")
    for function in (negated, compiled):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        with pytest.raises(NotImplementedError):
            function(x.unique(), y).sum().backward()


class State(torch.nn.Module):
    def __init__(self, write: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.write = write
        self.state = torch.zeros(3)
        self.w = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        self.write(self.state, self.w)
        return x * x


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


def test_a_history_without_a_derivative_is_none_of_another_written_input() -> None:
    """Eager's engine does not come to it from `b`."""

    def write(a: Tensor, b: Tensor) -> None:
        a.mul_(2)
        b.clamp_(1)

    x = torch.ones(3, requires_grad=True)
    b = x * 3
    flambeau.compile(write, backend="aot_eager")(x.unique() * 1, b)
    assert torch.autograd.grad(b.sum(), x)[0].tolist() == [3.0, 3.0, 3.0]
