"""Tensors that hold others (`__tensor_flatten__`): as arguments, results, parameters, made inside, with gradients, written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import flambeau

both = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


class Pair(Tensor):
    """Two tensors that every operation goes through."""

    @staticmethod
    def __new__(cls, a: Tensor, b: Tensor) -> Pair:
        return Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device)

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sides = [
            func(*pytree.tree_map_only(Pair, lambda t, s=side: getattr(t, s), args), **(kwargs or {})) for side in "ab"
        ]
        return pytree.tree_map(lambda a, b: Pair(a, b) if isinstance(a, Tensor) else a, *sides)


class Scaled(Tensor):
    """A tensor times a number, which is told with the object."""

    @staticmethod
    def __new__(cls, data: Tensor, factor: float) -> Scaled:
        return Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype)

    def __init__(self, data: Tensor, factor: float) -> None:
        self.held = data
        self.factor = factor

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["held"], {"factor": self.factor}

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], meta: Any, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["held"], meta["factor"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args = pytree.tree_map_only(Scaled, lambda t: t.held * t.factor, args)
        return func(*args, **(kwargs or {}))


def pair(*sizes: int, grad: bool = False) -> Pair:
    made = Pair(torch.randn(*sizes), torch.randn(*sizes))
    return made.requires_grad_() if grad else made


def told(value: Any) -> Any:
    """What is compared of a value."""
    if isinstance(value, (tuple, list)):
        return tuple(map(told, value))
    if isinstance(value, Pair):
        return ("pair", value.requires_grad, told(value.a), told(value.b))
    if isinstance(value, Tensor):
        return (type(value), value.requires_grad, value.shape, value.stride(), value.dtype, value.detach().tolist())
    return value


def check(program: Callable[[Compile], Any], backend: str, **options: Any) -> None:
    """The program gives the same compiled, each function as one graph, and as it is; an error is the same error."""
    found = []
    for compile in (lambda f: f, lambda f: flambeau.compile(f, backend=backend, **({"fullgraph": True} | options))):
        torch.manual_seed(0)
        try:
            found.append(told(program(compile)))
        except RuntimeError as error:
            found.append(str(error)[:60])
    assert found[0] == found[1]


@both
def test_arguments_and_results(backend: str) -> None:
    check(lambda c: c(lambda x: x.sin() * 2 + x)(pair(3)), backend)
    check(lambda c: c(lambda x, y: (x @ y).softmax(-1))(pair(2, 3), torch.randn(3, 2)), backend)
    check(lambda c: c(lambda x, y: Pair(x.sin(), y).relu())(torch.randn(4), torch.randn(4)), backend)
    check(lambda c: c(lambda x, y: (Pair(x, y) * 2).a + 1)(torch.randn(4), torch.randn(4)), backend)
    check(lambda c: c(lambda x: (x.a + x.b, isinstance(x, Pair), type(x) is Pair))(pair(4)), backend)
    check(lambda c: c(lambda x: (x * 2).t())(Pair(torch.randn(3, 2), torch.randn(2, 3).t())), backend)


@both
def test_the_same_object(backend: str) -> None:
    def run(compile: Compile) -> Any:
        x, y = pair(3), torch.randn(3)

        def function(x: Pair, y: Tensor) -> Any:
            z = x * 2
            return x, z, z, Pair(y, y)

        given, first, second, made = compile(function)(x, y)
        return given is x, first is second, made.a is y, first

    check(run, backend)


@both
def test_gradients(backend: str) -> None:
    def leaf(compile: Compile) -> Any:
        x = pair(3, grad=True)
        y = compile(lambda x: (x * x).exp())(x)
        y.sum().backward()
        return y, x.grad

    def computed(compile: Compile) -> Any:
        x, w = pair(3, grad=True), torch.randn(3, requires_grad=True)
        y, z = compile(lambda x, w: ((x * 3).exp(), w.sin()))(x * 2, w)
        z.sum().backward()
        first = w.grad
        y.sum().backward()
        return y, z, first, w.grad, x.grad

    def twice(compile: Compile) -> Any:
        x = pair(3, grad=True)
        y = compile(lambda x: (x * x * x).sum())(x)
        (grad,) = torch.autograd.grad(y, [x], create_graph=True)
        (grad * grad).sum().backward()
        return y, grad, x.grad

    def transposed(compile: Compile) -> Any:
        x = pair(3, 4, grad=True)
        compile(lambda x: x.exp())(x).backward(Pair(torch.ones(4, 3).t(), torch.ones(3, 4)))
        return x.grad

    for program in (leaf, computed, twice, transposed):
        check(program, backend)


@both
def test_parameters(backend: str) -> None:
    """The gradient of a plain parameter beside a wrapper is a wrapper, too."""

    def run(compile: Compile) -> Any:
        layer = nn.Linear(3, 2)
        layer.weight = nn.Parameter(pair(2, 3))
        x = torch.randn(4, 3)
        y = compile(layer)(x)
        y.sum().backward()
        return y, layer.weight.grad, layer.bias.grad

    check(run, backend)


@both
def test_errors_of_autograd(backend: str) -> None:
    """What eager saved and was written since, and what was freed."""

    def argument(compile: Compile) -> Any:
        x = pair(3, grad=True) * 1.0
        y = compile(lambda x: x * x)(x)
        with torch.no_grad():
            x.mul_(2)
        y.sum().backward()

    def not_saved(compile: Compile) -> Any:
        x = pair(3, grad=True)
        z = x * 1.0
        y = compile(lambda x: x.sum() + 1)(z)
        with torch.no_grad():
            z.mul_(2)
        y.backward()
        return x.grad

    def result(compile: Compile) -> Any:
        y = compile(lambda x: x.exp())(pair(3, grad=True))
        with torch.no_grad():
            y.mul_(2)
        y.sum().backward()

    def freed(compile: Compile) -> Any:
        y = compile(lambda x: (x * x).sum())(pair(3, grad=True))
        y.backward()
        y.backward()

    for program in (argument, not_saved, result, freed):
        check(program, backend)


@both
def test_writes(backend: str) -> None:
    def given(compile: Compile) -> Any:
        x = pair(3)
        y = compile(lambda x: x.mul_(2).add_(1).sum())(x)
        return x, y, x._version > 0

    check(given, backend)


@pytest.mark.falls_back("shares memory")
def test_writes_to_shared_memory() -> None:
    """What a later call brings in one memory, and a write to what is inside of what was written."""

    def shared(compile: Compile) -> Any:
        """What a later call brings in one memory."""

        def function(x: Pair, y: Tensor) -> Tensor:
            x.mul_(2)
            return x + y

        compiled, a = compile(function), torch.randn(3)
        first = compiled(pair(3), a)
        return first, compiled(Pair(a, torch.randn(3)), a), a

    def inside(compile: Compile) -> Any:
        def function(x: Pair) -> Any:
            x.mul_(2)
            x.a.add_(1)
            return x.a + 1

        x = pair(3)
        return compile(function)(x), x

    for program in (shared, inside):
        check(program, "aot_eager", fullgraph=False)


@pytest.mark.falls_back("that is a view of another")
def test_a_view_of_an_argument_is_left_to_eager() -> None:
    def view(compile: Compile) -> Any:
        x = pair(4, 3)
        y = compile(lambda x: x.t())(x)
        y.mul_(2)
        return x, y, y._is_view()

    check(view, "aot_eager", fullgraph=False)


def test_a_store_is_left_to_eager() -> None:
    def store(compile: Compile) -> Any:
        def function(x: Pair) -> Pair:
            x.a = x.a * 2
            return x + 1

        x = pair(3)
        return compile(function)(x), x

    check(store, "aot_eager", fullgraph=False)


@both
def test_what_is_guarded(backend: str) -> None:
    """Class, tensors inside, what the object tells of itself."""

    def run(compile: Compile) -> Any:
        f = compile(lambda x: x * 2 + 1)
        x = pair(3)
        doubles = Pair(torch.randn(3), torch.randn(3).double())
        scaled = [Scaled(torch.ones(3), factor) for factor in (2.0, 3.0, 2.0)]
        return f(x), f(x.a), f(doubles).b, *map(f, scaled), f(pair(5, grad=True)), f(pair(5))

    check(run, backend)


@both
def test_changing_sizes(backend: str) -> None:
    def run(compile: Compile) -> Any:
        f = compile(lambda x: (x * x.shape[0]).mean(0) + x.sum())
        found = [f(pair(n, 3)) for n in (2, 4, 5, 7)]
        g = compile(lambda x: (x * x).sum())
        for n in (2, 4, 5):
            x = pair(n, 3, grad=True)
            g(x).backward()
            found.append(x.grad)
        return found

    check(run, backend)
    check(run, backend, dynamic=True)
