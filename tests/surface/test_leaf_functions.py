"""`leaf_function`: functions that are one node of the graph and run in plain Python, by each way that a graph can go."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import flambeau
from flambeau import compiler

from .rows import calls

X = torch.arange(6.0).reshape(2, 3)
BACKENDS = ("eager", "inductor")
"""The graph as it is; and differentiated and compiled, of which `aot_eager` is the first half."""


def leaf(function: Callable[..., Any], fake: Callable[..., Any], **options: Any) -> Any:
    """The function with a fake implementation."""
    return compiler.leaf_function(**options)(function).register_fake(fake)


def compiled(function: Callable[..., Any], backend: str, **options: Any) -> Any:
    return flambeau.compile(function, backend=backend, fullgraph=True, **options)


@calls("helpers", "leaf_function")
@pytest.mark.parametrize("backend", BACKENDS)
def test_leaf_function(backend: str) -> None:
    """The documented program: a module as an argument, values that decide, a count; with gradients, and without, in a nested module."""
    seen: list[float] = []

    @compiler.leaf_function
    def watched(net, x):
        seen.append(x.detach().sum().item())
        return {"out": net(x).exp() if seen[-1] > 0 else net(x) - 1, "factor": 2}

    @watched.register_fake
    def _(net, x):
        return {"out": x.new_empty(x.shape[0], net.weight.shape[0]), "factor": 2}

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(3, 2)

        def forward(self, x):
            first = watched(self.inner, x.sin())
            return first["out"] * first["factor"] + watched(self.inner, -x)["out"]

    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), Model()), torch.randn(4, 3, requires_grad=True)
    fast = compiled(model, backend)

    def run(function: Callable[..., Any]) -> list[torch.Tensor]:
        found = function(x)
        return [found, *torch.autograd.grad(found.sum(), [x, *model.parameters()])]

    expected, called = run(model), list(seen)
    for _ in range(3):
        seen.clear()
        torch.testing.assert_close(run(fast), expected)
        assert seen == pytest.approx(called)
    with torch.no_grad():
        seen.clear()
        torch.testing.assert_close(fast(x), expected[0].detach())
        assert seen == pytest.approx(called)


@pytest.mark.parametrize("backend", BACKENDS)
def test_effects_hooks_and_writes(backend: str) -> None:
    log: list[Any] = []

    def told(x: torch.Tensor) -> None:
        log.append("called")

    def counted(x, state):
        state["total"].add_(x.detach().sum())
        return x * state["total"], x

    tell = leaf(told, lambda x: None)
    tell.register_multi_grad_hook(lambda gradient: log.append(gradient.sum().item()))
    count = leaf(counted, lambda x, state: (torch.empty_like(x), x), mutates_args={"state['total']"})

    def f(x, total):
        y = x.sin()
        tell(y)
        scaled, same = count(y, {"total": total})
        return scaled * total + same

    def run(function: Callable[..., Any]) -> list[Any]:
        log.clear()
        x, total = X.clone().requires_grad_(), torch.ones(())
        found = function(x, total)
        return [found, total, torch.autograd.grad(found.sum(), x)[0]]

    expected, logged = run(f), list(log)
    assert logged[0] == "called" and len(logged) == 2
    fast = compiled(f, backend)
    for _ in range(2):
        torch.testing.assert_close(run(fast), expected)
        assert log == pytest.approx(logged)


def test_memory_that_a_function_keeps_is_its_own() -> None:
    """Compiled code writes over what nobody needs: not what the function's backward needs, nor what the program put away."""
    kept: list[torch.Tensor] = []

    def keeping(x):
        kept.extend([x.detach(), x.exp()])
        return kept[-1]

    keep = leaf(keeping, lambda x: torch.empty_like(x))

    def f(x):
        return ((keep(x + 1) + 1) * 3).cos()

    fast = compiled(f, "inductor")
    for x in (X, X.clone().requires_grad_()):
        expected, found = f(x), fast(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(kept[2:], kept[:2])
        kept.clear()
    graph = [torch.autograd.grad(found.sum(), x, retain_graph=True)[0] for _ in range(2)]
    torch.testing.assert_close(graph, [torch.autograd.grad(expected.sum(), x)[0]] * 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_errors(backend: str) -> None:
    """They are the program's: raised as they are, after one call."""
    ran: list[int] = []

    def refused(function: Callable[..., Any], fake: Callable[..., Any], x: torch.Tensor = X) -> str:
        def once(*args: Any) -> Any:
            ran.append(1)
            return function(*args)

        made = leaf(once, fake)
        ran.clear()
        with pytest.raises((RuntimeError, ZeroDivisionError)) as caught:
            compiled(lambda x: made(x.sin()) + 1, backend)(x)
        assert len(ran) == 1
        return str(caught.value)

    assert "its fake says" in refused(lambda x: x[:1].clone(), torch.empty_like)
    assert "its fake says" in refused(lambda x: x.double(), torch.empty_like)
    assert "mutates_args" in refused(lambda x: x.add_(1), lambda x: x)
    assert "memory of an argument" in refused(lambda x: x[:], torch.empty_like)
    assert "division" in refused(lambda x: x + 1 / 0, torch.empty_like)
    if backend != "eager":
        weight = torch.ones(3, requires_grad=True)
        assert "not among its arguments" in refused(lambda x: x * weight, torch.empty_like)
        assert "not among its arguments" in refused(lambda x: x * weight, torch.empty_like, X.clone().requires_grad_())


def test_second_derivatives_are_eagers() -> None:
    cube = leaf(lambda x: x**3, torch.empty_like)

    def f(x):
        (first,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
        return torch.autograd.grad((first * x).sum(), x)[0]

    x = X.clone().requires_grad_()
    torch.testing.assert_close(flambeau.compile(f, backend="aot_eager")(x), f(x))
    with pytest.raises(flambeau.FlambeauError, match="create_graph"):
        compiled(f, "aot_eager")(x)


class Scaled(torch.nn.Module):
    """Has two names for its parameter; with `buffer`, what a function is given a copy of."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.weight = self.bias = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("factor", torch.randn(3) if buffer else None)

    def forward(self, x):
        return x * self.weight.exp() + self.bias * (1 if self.factor is None else self.factor)


@pytest.mark.parametrize("buffer", [False, True])
def test_two_threads_with_one_module(buffer: bool) -> None:
    """A module keeps its own tensors, and each thread gets its gradients; functions that are given these themselves run at the same time."""
    limit = 0.2 if buffer else 10.0
    met = [threading.Event(), threading.Event(), threading.Event()]
    places: dict[int, int] = {}
    together: list[bool] = []

    def meeting(net, x):
        place = places.get(threading.get_ident())
        if place is not None:
            met[place].set()
            together.append(met[1 - place].wait(limit))
            if place == 1:
                met[2].wait(limit)
        return net(x)

    net, meet = Scaled(buffer), leaf(meeting, lambda net, x: torch.empty_like(x))
    own = [net.weight, net.bias, net.factor]
    fast = compiled(lambda x: meet(net, x.sin()) * 2, "aot_eager")

    def run(function: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
        found = function(x)
        return [found, *torch.autograd.grad(found.sum(), [x, *net.parameters()])]

    inputs = [X.clone().requires_grad_(), (X + 1).requires_grad_()]
    expected = [run(lambda x: net(x.sin()) * 2, x) for x in inputs]
    torch.testing.assert_close(run(fast, inputs[0]), expected[0])

    def in_thread(place: int) -> list[torch.Tensor]:
        places[threading.get_ident()] = place
        found = run(fast, inputs[place])
        met[2].set()
        return found

    with ThreadPoolExecutor(2) as pool:
        torch.testing.assert_close(list(pool.map(in_thread, (0, 1))), expected)
    assert all(now is tensor for now, tensor in zip([net.weight, net.bias, net.factor], own, strict=True))
    assert len(together) == 2 and (buffer or all(together))


def test_a_pending_backward_keeps_the_call() -> None:
    log: list[float] = []
    double = leaf(lambda x: x * 2, torch.empty_like)
    double.register_multi_grad_hook(lambda gradient: log.append(gradient.sum().item()))
    fast, x = compiled(lambda x: double(x.sin()).cos(), "aot_eager"), X.clone().requires_grad_()
    found = fast(x)
    del fast
    compiler.reset()
    gc.collect()
    found.sum().backward()
    expected = torch.autograd.grad((x.sin() * 2).cos().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    assert len(log) == 1


def test_no_fake() -> None:
    alone = compiler.leaf_function(lambda x: x + 1)
    with pytest.raises(ValueError, match="register_fake"):
        alone(X)
    with pytest.raises(flambeau.FlambeauError, match="register_fake"):
        compiled(lambda x: alone(x), "eager")(X)


def test_it_is_not_kept_on_disk() -> None:
    from flambeau.graph_key import Uncacheable, graph_key

    graphs: list[Any] = []
    double = leaf(lambda x: x * 2, torch.empty_like)

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    flambeau.compile(lambda x: double(x) + 1, backend=backend)(X)
    with pytest.raises(Uncacheable, match="not torch's"):
        graph_key(graphs[0], None, None)  # type: ignore[arg-type]


def test_torchs_own_decorator() -> None:
    made = importlib.import_module("torch._dynamo.decorators").leaf_function(
        lambda pair: [pair[0] * pair[1].sum().item()]
    )
    made.register_fake(lambda pair: [torch.empty_like(pair[0])])

    def f(x):
        return made((x, x + 1))[0] + 1

    x = X.clone().requires_grad_()
    for backend in ("eager", "aot_eager"):
        found, expected = compiled(f, backend)(x), f(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))
