"""Jagged nested tensors: as arguments, results, made inside, beside parameters; which offsets belong together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nested import nested_tensor, nested_tensor_from_jagged

import flambeau

pytestmark = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


def jagged(*lengths: int, width: int = 3, grad: bool = False) -> Tensor:
    made = nested_tensor([torch.randn(length, width) for length in lengths], layout=torch.jagged)
    return made.requires_grad_() if grad else made


def told(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(told, value))
    if isinstance(value, Tensor) and value.is_nested:
        return ("jagged", value.requires_grad, told(value.values()), value.offsets().tolist())
    if isinstance(value, Tensor):
        return (type(value), value.requires_grad, value.shape, value.stride(), value.dtype, value.detach().tolist())
    return value


def check(program: Callable[[Compile], Any], backend: str, **options: Any) -> None:
    """The program gives the same compiled, each function as one graph, and as it is."""
    found = []
    for compile in (lambda f: f, lambda f: flambeau.compile(f, backend=backend, fullgraph=True, **options)):
        torch.manual_seed(0)
        found.append(told(program(compile)))
    assert found[0] == found[1]


def test_arguments(backend: str) -> None:
    for function in (
        lambda x: x.relu().sin() * 2 + 1,
        lambda x: x.softmax(-1),
        lambda x: x.mean(dim=1),
        lambda x: x.transpose(1, 2) * 2,
        lambda x: torch.nested.to_padded_tensor(x, -1.0).sum(1),
        lambda x: (x.size(0), x.size(2), x.dim(), x.is_nested, x.layout, x * 2),
        lambda x: (x.offsets(), (x + 1).values()),
    ):
        check(lambda c, function=function: c(function)(jagged(2, 4, 1)), backend)


@pytest.mark.falls_back("cannot call binary pointwise function")
def test_offsets_that_belong_together(backend: str) -> None:
    """One tensor of offsets, another one in a later call."""

    def run(compile: Compile) -> Any:
        f = compile(lambda x, y: x + y)
        x, z = jagged(2, 3), jagged(2, 3)
        y = x * 2
        assert f(x, y).shape == x.shape
        found = [f(x, y), f(y, x)]
        with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
            f(x, z)
        return found

    check(run, backend)


def test_parts_that_change(backend: str) -> None:
    def run(compile: Compile) -> Any:
        f = compile(lambda x: (x * 2).sin())
        return [f(jagged(*lengths)) for lengths in ((2, 3), (4, 3), (1, 2, 3), (5, 5, 5, 5))]

    check(run, backend)
    check(run, backend, dynamic=True)


def test_made_inside(backend: str) -> None:
    def offsets(compile: Compile) -> Any:
        f = compile(lambda values, offsets: nested_tensor_from_jagged(values, offsets).sin())
        values = torch.randn(7, 3)
        return [f(values, torch.tensor(parts)) for parts in ([0, 2, 6, 7], [0, 1, 1, 7], [0, 3, 7])]

    def gradient(compile: Compile) -> Any:
        values = torch.randn(7, 3, requires_grad=True)
        f = compile(lambda values, offsets: (nested_tensor_from_jagged(values, offsets) * 2).sin())
        y = f(values, torch.tensor([0, 2, 6, 7]))
        y.values().sum().backward()
        return y, values.grad

    check(offsets, backend)
    check(gradient, backend)


def test_gradients_and_parameters(backend: str) -> None:
    def of_argument(compile: Compile) -> Any:
        x = jagged(2, 3, grad=True)
        y = compile(lambda x: (x * x).exp())(x)
        y.backward(torch.ones_like(y))
        return y, x.grad

    def of_parameters(compile: Compile) -> Any:
        layer = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        x = jagged(2, 3)
        compile(layer)(x).values().sum().backward()
        return [parameter.grad for parameter in layer.parameters()]

    check(of_argument, backend)
    check(of_parameters, backend)


def test_a_write(backend: str) -> None:
    def run(compile: Compile) -> Any:
        x = jagged(2, 3)
        compile(lambda x: x.mul_(2).add_(1))(x)
        return x

    check(run, backend)
