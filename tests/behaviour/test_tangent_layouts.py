"""Gradients of a compiled function whose results are differentiated with tangents of all layouts: they lie, and share memory, as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau
from flambeau.records import Recorder

from ..sweeps.backends import backend_of

TANGENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda out: torch.randn(out.shape),
    "one number": lambda out: torch.ones(()).expand(out.shape),
    "rows": lambda out: torch.randn(out.shape[-1:]).expand(out.shape),
    "turned": lambda out: torch.randn(out.shape[::-1]).permute(*reversed(range(out.dim()))),
    "with gaps": lambda out: torch.randn(*out.shape[:-1], 2 * out.shape[-1])[..., ::2],
}


class InOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.contiguous()


def many(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        x + y,
        x.t() + 1,
        x.view(2, -1) * 2,
        x.t() * y.t(),
        torch.cat([x, y]),
        x.sum(0),
        x.expand(2, 3, 4).clone(),
        -y.reshape(-1),
        InOrder.apply(y),
        y.sin().t(),
        x @ y.t(),
    )


def seen(function: Callable[..., Any], name: str, place: int) -> list[Any]:
    """Of each gradient its strides, those that a hook saw, and what shares memory with the tangent or the other."""
    torch.manual_seed(place)
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    out = function(x, y * 1)[place]
    tangent = TANGENTS[name](out)
    found = torch.autograd.grad(out, (x, y), tangent, allow_unused=True)
    places = [None if grad is None else grad.untyped_storage().data_ptr() for grad in (tangent, *found)]
    return [*found, *(None if grad is None else grad.stride() for grad in found), *map(places.index, places)]


@pytest.mark.parametrize("backend", ["aot_eager", "lowered", "inductor"])
def test_gradients_of_many_functions(backend: str) -> None:
    chosen = backend_of(backend, Recorder()) if backend == "lowered" else backend
    compiled = flambeau.compile(many, backend=chosen)
    for place in range(11):
        for name in TANGENTS:
            ours, theirs = seen(compiled, name, place), seen(many, name, place)
            torch.testing.assert_close(ours[:2], theirs[:2])
            if name != "dense":  # what comes in order and is a sum with what does not come is a new tensor
                assert ours[2:] == theirs[2:], (name, place)


def test_a_hook_sees_how_eagers_gradient_lies() -> None:
    def strides(function: Callable[[Tensor], Tensor]) -> list[Any]:
        x = torch.randn(3, 4, requires_grad=True) * 1
        found: list[Any] = []
        x.register_hook(lambda grad: found.append(grad.stride()))
        function(x).sum().backward()
        return found

    def function(x: Tensor) -> Tensor:
        return x.t() + 1

    assert strides(flambeau.compile(function)) == strides(function) == [(0, 0)]


def test_sizes_that_change() -> None:
    def function(x: Tensor, n: int) -> Tensor:
        return x.t().reshape(n, -1) + 1

    compiled = flambeau.compile(function, dynamic=True, backend="aot_eager")
    found = []
    for shape, n in (((4, 6), 2), ((6, 8), 4), ((8, 2), 8)):
        for run in (compiled, function):
            x = torch.randn(shape, requires_grad=True)
            out = run(x, n)
            tangents = (torch.ones(()).expand(out.shape), torch.ones(out.shape[::-1]).t())
            found.append([torch.autograd.grad(out, x, t, retain_graph=True)[0].stride() for t in tangents])
    assert found[::2] == found[1::2]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_a_program_put_in_the_place_of_torchs_is_not_called_for_it(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Tensor) -> Tensor:
        return x.masked_fill(x > 0, 1.0).t() * 2

    calls = []
    own = Tensor.masked_fill
    x = torch.randn(3, 4, requires_grad=True)
    out = flambeau.compile(function, backend=backend)(x).sum()
    monkeypatch.setattr(Tensor, "masked_fill", lambda *args: calls.append(args) or own(*args))
    (grad,) = torch.autograd.grad(out, x)
    assert grad.stride() == torch.autograd.grad(function(x).sum(), x)[0].stride()
    assert len(calls) == 1
