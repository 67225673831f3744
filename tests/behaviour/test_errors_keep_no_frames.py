"""What the frame of a program held is freed with the error that ended it, in whatever way a compiled call comes to raise or to catch one.

Python's collector does not run meanwhile: a cycle through an exception and a frame of the compiler holds the frames of the program that called it, too.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from flambeau.compiler import graph_break

from .counted_graphs import CountedGraphs

DECLARATIONS = """
class Made: pass
def made():
    new = Made()
    HELD.append(weakref.ref(new))
    return new
class E1(Exception): pass
def fail(x):
    raise E1(1)
def bad(x):
    return x @ torch.ones(7, 7)
def idx(x):
    return F.one_hot(torch.tensor([5]) + x.sum().long() * 0, 3)
class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        raise E1(2)
"""
RAISES = {
    "an op": "x = bad(x)",
    "an op for values": "x = x + idx(x).sum()",
    "a function": "x = fail(x * 2)",
    "a function behind a break": "graph_break()\n    x = fail(x * 2)",
    "an op behind a break": "graph_break()\n    x = bad(x)",
    "an op for values behind a break": "graph_break()\n    x = x * idx(x).sum()",
    "a branch": "if x.sum().item() > -100:\n        raise E1(1)",
    "a disabled function": "x = flambeau.compiler.disable(fail)(x * 2)",
    "an assertion": "x = x * 2\n    assert kept is None",
    "an attribute": "x = x * kept.missing",
    "a key": "x = x * {}['a']",
    "an operator": "x = x + 'a'",
    "unpacking": "a, b = 1, 2, 3",
    "a method": "x = x * 2\n    [].remove(1)",
    "a division by zero": "x = x * (1 // int(x.sum().item() * 0))",
    "a size": "x = x.clone()\n    x.add_(1)\n    x = x.view(7)",
    "a size that values decide": "x = x[x > 0].view(77)",
    "a write": "x = x.clone()\n    x += idx(x).sum()",
    "a key function": "sorted([1, 2], key=fail)",
    "a map": "x = list(map(bad, [x]))",
    "a comprehension": "x = [bad(x) for _ in range(2)]",
    "a closure": "def inner(x):\n        return bad(x) * (kept is None)\n    x = inner(x)",
    "a generator": "def g():\n        yield x * 2\n        bad(x)\n    for value in g():\n        x = x + value",
    "a generator's function": "def g():\n        yield x * 2\n        fail(x)\n    for value in g():\n        x = x + value",
    "a thrown error": "def g():\n        yield x * 2\n    it = g()\n    next(it)\n    it.throw(E1(1))",
    "a generator is left": "def g():\n        with torch.no_grad():\n            yield x * 2\n            yield x * 3\n    it = g()\n    y = x + next(it)\n    x = bad(y)",
    "a generator is left at a break": "def g():\n        with torch.no_grad():\n            yield x * 2\n            yield x * 3\n    it = g()\n    y = x + next(it)\n    graph_break()\n    x = bad(y)",
    "a backward": "y = Fails.apply(x.detach().requires_grad_()).sum()\n    y.backward()",
    "a refused backward": "y = x.detach().requires_grad_() * 2\n    torch.autograd.grad(y.sum(), torch.ones(3))",
    "a hook": "y = x.detach().requires_grad_() * 2\n    def hook(grad):\n        raise E1(kept)\n    y.register_hook(hook)\n    y.sum().backward()",
    "a hook on saved tensors": "def pack(value):\n        raise E1(kept)\n    y = x.detach().requires_grad_()\n    with torch.autograd.graph.saved_tensors_hooks(pack, abs):\n        y = y.sin() * y",
    "nothing": "x = x * 2",
    "nothing, and a generator is left": "def g():\n        with torch.no_grad():\n            yield x * 2\n            yield x * 3\n    it = g()\n    y = x + next(it)\n    graph_break()\n    x = y * 2",
}  # fmt: skip
AROUND = {
    "nothing": "{}",
    "another error": "try:\n    {}\nexcept Exception:\n    raise KeyError(3)",
    "another error with a cause": "try:\n    {}\nexcept Exception as error:\n    raise ValueError(2) from error",
    "a handler": "try:\n    {}\nexcept Exception:\n    x = x * 3",
    "a handler that breaks": "try:\n    {}\nexcept Exception:\n    graph_break()\n    x = x * 3",
    "finally": "try:\n    {}\nfinally:\n    x = x * 3 if isinstance(x, torch.Tensor) else x",
    "a mode": "with torch.no_grad():\n    {}",
    "a stack": "with contextlib.ExitStack() as stack:\n    stack.callback(lambda: kept)\n    {}",
    "a manager": "@contextlib.contextmanager\ndef manager():\n    try:\n        yield kept\n    finally:\n        graph_break()\nwith manager():\n    {}",
    "a loop": "for k in range(2):\n    {}",
    "a loop that breaks": "for k in range(2):\n    graph_break()\n    {}",
    "a callee": "def callee(x):\n    mine = made()\n    {}\n    return x\nx = callee(x)",
}  # fmt: skip


_NO_GRAPH = ("an attribute", "a key function", "nothing, and a generator is left")


def _source(around: str, raises: str) -> str:
    lines = RAISES[raises].split("\n    ")
    body = []
    for line in AROUND[around].splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        body += [line.replace("{}", lines[0])] + [indent + more for more in lines[1:]] if "{}" in line else [line]
    return "def f(x):\n    kept = made()\n" + "".join(f"    {line}\n" for line in body) + "    return x\n"


def _run(source: str, compiler: Callable[..., Any]) -> list[Any]:
    """How each call ended, what was alive afterwards, and the mode that it left."""
    held: list[weakref.ref[Any]] = []
    space: dict[str, Any] = {
        "torch": torch, "F": F, "weakref": weakref, "contextlib": contextlib, "flambeau": flambeau, "graph_break": graph_break, "HELD": held,
    }  # fmt: skip
    exec(compile(DECLARATIONS + source, "<raises>", "exec"), space)
    function = compiler(space["f"])
    found = []
    for needs_grad in (False, True, False):
        x: Tensor = torch.ones(2, 2, requires_grad=needs_grad)
        ended = "returned"
        try:
            function(x)
        except Exception as error:
            ended = type(error).__name__
        modes = torch.is_grad_enabled(), torch._C._autograd._top_saved_tensors_default_hooks(True) is None
        found.append((ended, [made() is None for made in held], modes))
        held.clear()
        torch.set_grad_enabled(True)  # a generator that ends late leaves another in plain Python too
    return found


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flambeau.compile(lambda x: F.one_hot(torch.tensor([0]) + x.sum().long() * 0, 3))(
            torch.ones(2)
        )  # what torch imports
        gc.collect()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()


def _compare(cases: list[tuple[str, str]], compiler: Callable[..., Any]) -> None:
    for around, raises in cases:
        source = _source(around, raises)
        flambeau.compiler.reset()
        plain, found = _run(source, lambda function: function), _run(source, compiler)
        assert found == plain, f"{around}, {raises}\n{source}\n{plain}\n{found}"


@pytest.mark.judges_itself  # operations that raise leave their frame to Python
@pytest.mark.parametrize("raises", RAISES)
def test_an_error_goes_without_the_frames_it_came_by(raises: str) -> None:
    graphs = CountedGraphs()
    place = list(RAISES).index(raises)
    around = [list(AROUND)[(place + step) % len(AROUND)] for step in (0, 5)]
    _compare([("nothing", raises), *((name, raises) for name in around)], graphs)
    assert graphs.number or raises in _NO_GRAPH


@pytest.mark.judges_itself
def test_of_the_default_backend_too() -> None:
    _compare(
        [("nothing", "an op for values"), ("a handler", "an op for values behind a break"), ("a mode", "an op")],
        flambeau.compile,
    )


@pytest.mark.slow
@pytest.mark.judges_itself
@pytest.mark.parametrize("around", AROUND)
def test_every_error_in_every_place(around: str) -> None:
    graphs = CountedGraphs()
    _compare([(around, raises) for raises in RAISES], graphs)
    assert graphs.number >= 20
