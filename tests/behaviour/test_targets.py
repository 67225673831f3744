"""What may be given to `flambeau.compile`: compiled where it can be, else left alone with a line that says why."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint

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


class Decorating(contextlib.ContextDecorator):
    """A block that is a decorator as well."""

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


@contextlib.contextmanager
def block() -> Iterator[None]:
    yield


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


class Calls(type):
    """A metaclass that makes instances its own way."""

    def __call__(cls, *args: Any) -> Any:
        return super().__call__(*args)


class Slotted(metaclass=Calls):
    __slots__ = ("by",)

    def __call__(self, x: Tensor) -> Tensor:
        return x * 2

    def method(self, x: Tensor) -> Tensor:
        return x * 2

    @classmethod
    def of_class(cls, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def static(x: Tensor) -> Tensor:
        return x * 2

    part = functools.partialmethod(method)


class CalledByObject:
    """Its call is an object of another class."""

    __call__ = Slotted()


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


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
    "lambda": (lambda x: x * 2, (X,)),
    "bound method": (Slotted().method, (X,)),
    "class method": (Slotted.of_class, (X,)),
    "static method": (Slotted.static, (X,)),
    "object of a static method": (staticmethod(doubled), (X,)),
    "partial method": (Slotted().part, (X,)),
    "object with slots and a metaclass": (Slotted(), (X,)),
    "object whose call is an object": (CalledByObject(), (X,)),
    "wrapped twice": (wrapping(wrapping(doubled)), (X,)),
    "single dispatch": (functools.singledispatch(doubled), (X,)),
    "in a block of contextlib": (block()(doubled), (X,)),
    "in a block of a class": (Decorating()(doubled), (X,)),
    "without gradients": (torch.no_grad()(doubled), (X,)),
    "in inference mode": (torch.inference_mode()(doubled), (X,)),
    "vmap": (torch.vmap(doubled), (X,)),
    "gradient": (torch.func.grad(lambda x: x.sin().sum()), (X,)),
    "jacobian": (torch.func.jacrev(lambda x: x.sin().sum()), (X,)),
    "checkpoint": (functools.partial(checkpoint, doubled, use_reentrant=False), (X,)),
    "autograd function": (Sine.apply, (X,)),
    "compiled": (flambeau.compile(doubled), (X,)),
    "compiled with other arguments": (flambeau.compile(doubled, backend="eager", dynamic=True), (X,)),
    "compiled by a compiled function": (flambeau.compile(lambda x: flambeau.compile(doubled)(x)), (X,)),
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
    "disabled by torch": (torch.compiler.disable(doubled), lambda y: y, "disabled"),
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


@contextlib.contextmanager
def making_blocks(x: Tensor) -> Iterator[Tensor]:
    yield x * 2


WITHOUT_GRAPHS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "getter of an attribute": (operator.attrgetter("mT"), "graph_break", "attrgetter"),
    "caller of a method": (operator.methodcaller("sin"), "graph_break", "methodcaller"),
    "getter of an item": (operator.itemgetter(0), "graph_break", "itemgetter"),
    "function of Python in C": (len, "frame_in_python", "no tensor operation"),
    "function that makes blocks": (making_blocks, "frame_skipped", "not looked at"),
    "transform that is not modelled": (torch.func.functionalize(doubled), "graph_break", "cannot be traced"),
}


@pytest.mark.judges_itself
@pytest.mark.parametrize("name", WITHOUT_GRAPHS)
def test_what_gives_no_graph_says_so(name: str) -> None:
    """In a line when it is called, and in `explain`."""
    target, event, words = WITHOUT_GRAPHS[name]
    stream = io.StringIO()
    log.configure(log.parse("info"), stream)
    try:
        compiled = flambeau.compile(target)
        compiled(X)
    finally:
        log.configure(log.LogSettings())
    assert event in stream.getvalue()
    assert words in str(flambeau.explain(target, measure=False)(X))


@pytest.mark.judges_itself
def test_a_call_without_a_frame_of_python_says_so_once() -> None:
    """A result that was kept: nothing ran that could be captured. The next call with another argument is compiled."""
    kept = functools.lru_cache(lambda n: torch.ones(n) * 2)
    kept(3)
    stream = io.StringIO()
    log.configure(log.parse("info"), stream)
    graphs: list[Any] = []
    try:
        compiled = flambeau.compile(kept, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
        for _ in range(3):
            compiled(3)
    finally:
        log.configure(log.LogSettings())
    (line,) = stream.getvalue().splitlines()
    assert "nothing_captured" in line and "no function of Python ran" in line
    assert "no function of Python ran" in flambeau.explain(kept, measure=False)(3).not_captured
    assert not graphs
    assert_same(compiled(4), torch.ones(4) * 2)
    assert len(graphs) == 1


def test_what_a_disabled_function_was_made_of_is_compiled() -> None:
    """The mark is the wrapper's; under fullgraph a call of it is an error."""
    left = flambeau.compiler.disable(doubled)
    assert_same(flambeau.compile(lambda x: doubled(x) + 1, fullgraph=True)(X), doubled(X) + 1)
    with pytest.raises(flambeau.errors.GraphBreakError, match="marked with disable"):
        flambeau.compile(lambda x: left(x) + 1, fullgraph=True)(X)
