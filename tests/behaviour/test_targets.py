"""What may be given to `flambeau.compile`: compiled where it can be, else left alone with a line that says why."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn

import flambeau
from flambeau import log
from tests.comparison import assert_same

X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Callable_:
    """An object that can be called."""

    def __call__(self, x: Tensor) -> Tensor:
        return x + 1


def doubled(x: Tensor, by: float = 2.0) -> Tensor:
    return x * by


COMPILED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "function of torch": (torch.add, (X, X)),
    "operator": (torch.ops.aten.mul.Tensor, (X, X)),
    "operator packet": (torch.ops.aten.mul, (X, X)),
    "bound method in C": (X.add, (X,)),
    "method of a type in C": (torch.Tensor.mul, (X, X)),
    "partial of a function in C": (functools.partial(torch.add, 1), (X,)),
    "partial of a partial": (functools.partial(functools.partial(torch.add, alpha=2), X), (X,)),
    "partial of a function": (functools.partial(doubled, by=3.0), (X,)),
    "callable object": (Callable_(), (X,)),
    "traced module": (fx.symbolic_trace(nn.Sequential(nn.Linear(4, 2), nn.ReLU())), (X,)),
    "exported program": (torch.export.export(nn.Linear(4, 2), (X,)).module(), (X,)),
    "data parallel": (nn.DataParallel(nn.Linear(4, 2)), (X,)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_it_is_compiled(name: str) -> None:
    """One graph, with the result of eager; a module keeps its class."""
    target, args = COMPILED[name]
    graphs = []

    def backend(gm: fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = flambeau.compile(target, backend=backend)
    for _ in range(2):
        assert_same(compiled(*args), target(*args))
    assert len(graphs) == 1
    assert sum(node.op.startswith("call") for node in graphs[0].graph.nodes) >= 1
    if hasattr(target, "__name__"):
        assert compiled.__name__ == target.__name__


def test_a_traced_module_that_is_edited_is_compiled_again() -> None:
    """Through either object: the class that is written to is the original's."""
    gm = fx.symbolic_trace(nn.ReLU())
    compiled = flambeau.compile(gm, backend="eager")
    assert_same(compiled(X), X.relu())
    for change, owner in ((torch.neg, compiled), (torch.exp, gm)):
        last = next(iter(reversed(gm.graph.find_nodes(op="output"))))
        with gm.graph.inserting_before(last):
            last.args = (gm.graph.call_function(change, (last.args[0],)),)
        owner.recompile()
        assert_same(compiled(X), gm(X))
    assert_same(compiled(X), X.relu().neg().exp())


async def coroutine(x: Tensor) -> Tensor:
    return x + 1


def generator(x: Tensor) -> Iterator[Tensor]:
    yield x + 1


async def asynchronous_generator(x: Tensor) -> Any:
    yield x + 1


async def collected(found: Any) -> list[Any]:
    return [value async for value in found]


LEFT: dict[str, tuple[Callable[..., Any], Callable[[Any], Any], str]] = {
    "coroutine function": (coroutine, asyncio.run, "awaited"),
    "generator function": (generator, list, "iterated"),
    "partial of a generator function": (functools.partial(generator), list, "iterated"),
    "asynchronous generator function": (
        asynchronous_generator, lambda found: asyncio.run(collected(found)), "iterated",
    ),
    "script module": (torch.jit.trace(nn.Linear(4, 2), X), lambda y: y, "TorchScript"),
    "script function": (torch.jit.trace(lambda x: x + 1, (X,)), lambda y: y, "TorchScript"),
    "transform": (torch.vmap(doubled), lambda y: y, "not captured"),
    "disabled": (flambeau.compiler.disable(doubled), lambda y: y, "disabled"),
}  # fmt: skip


@pytest.mark.judges_itself
@pytest.mark.parametrize("name", LEFT)
def test_it_is_left_alone_and_told(name: str) -> None:
    """One line when it is given, the reason in `explain`, and the call does what it did."""
    target, consume, words = LEFT[name]
    stream = io.StringIO()
    log.configure(log.parse("info"), stream)
    try:
        compiled = flambeau.compile(target)
        (line,) = stream.getvalue().splitlines()
        assert "not_captured" in line and words in line
        for _ in range(2):
            assert_same(consume(compiled(X)), consume(target(X)))
    finally:
        log.configure(log.LogSettings())
    found = flambeau.explain(target)(X)
    assert words in found.not_captured and f"not captured: {found.not_captured}" in " ".join(str(found).split())
    if asyncio.iscoroutine(found.result):
        found.result.close()
