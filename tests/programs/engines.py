"""The compilers that run the programs, and a backend that counts the graphs it is given.

In: a compiler's name and a callable. Out: the callable compiled, and what the compiler tells about it. The one file of the tests that
names torch.compile; it is only ever loaded in a process of its own (`worker.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from attrs import Factory, define

COMPILERS = ("eager", "torch.compile", "flambeau")
_CALLS = ("call_function", "call_method", "call_module")


@define
class Counted:
    """A backend that runs each graph as it is, or hands it on.

    Attributes:
        then: the backend that compiles them; None runs them as they are.
        graphs: how many graphs with an operation it was given.
    """

    then: Callable[..., Any] | None = None
    graphs: int = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs += any(node.op in _CALLS for node in graph.graph.nodes)
        return graph.forward if self.then is None else self.then(graph, inputs)


@define
class Told:
    """What flambeau tells of the graphs that it compiled: why graphs ended, and why graphs ran in eager."""

    breaks: list[Any] = Factory(list)
    in_eager: list[Any] = Factory(list)


#: How a program that compiles a part of itself does it; set while a program runs.
_INNER: list[Callable[..., Any]] = []


def inner_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a program calls for a compiled callable of its own: compiled by the compiler that runs the program, as it is in eager."""
    return _INNER[-1](function) if _INNER else function


@contextlib.contextmanager
def _inner(compiled: Callable[..., Any]) -> Iterator[None]:
    _INNER.append(compiled)
    try:
        yield
    finally:
        _INNER.pop()


def counted(compiler: str, backend: Counted, *, fullgraph: bool) -> Callable[..., Any]:
    """The compile call with a backend that counts."""
    if compiler == "torch.compile":
        return lambda function: torch.compile(function, backend=backend, fullgraph=fullgraph)
    import flambeau

    return lambda function: flambeau.compile(function, backend=backend, fullgraph=fullgraph)


def default(compiler: str, told: Told, *, dynamic: bool | None = None) -> Callable[..., Any]:
    """The compile call as a user makes it; torch.compile without its code generator, as only capture is measured."""
    if compiler == "eager":
        return lambda function: function
    if compiler == "torch.compile":
        return lambda function: torch.compile(function, backend="aot_eager", dynamic=dynamic)
    from flambeau.compile import compile_recorded
    from flambeau.records import Recorder

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        recorder = Recorder()
        region = compile_recorded(function, recorder, dynamic=dynamic)
        told.breaks, told.in_eager = recorder.breaks, recorder.eager_graphs
        return region

    return compiled


def joint(compiler: str, told: Told, backend: str) -> tuple[Callable[..., Any], Callable[[], int]]:
    """The compile call with a backend of the compiler's by its name, and how many graphs with an operation there were since."""
    if compiler == "torch.compile":
        count = Counted(torch._dynamo.lookup_backend(backend))
        return lambda function: torch.compile(function, backend=count), lambda: count.graphs
    from flambeau.compile import compile_recorded
    from flambeau.records import Recorder

    recorder = Recorder()
    told.breaks, told.in_eager = recorder.breaks, recorder.eager_graphs
    compiled = partial(compile_recorded, recorder=recorder, backend=backend)
    return compiled, lambda: sum(graph.operations > 0 for graph in recorder.graphs)


def breaks(compiler: str, told: Told) -> list[str]:
    """Why graphs ended since the compiler was reset."""
    if compiler == "torch.compile":
        return [reason.splitlines()[0] for reason in torch._dynamo.utils.counters["graph_break"]]
    return [f"{each.code}: {each.reason}" for each in told.breaks]


def using(compiled: Callable[..., Any]) -> contextlib.AbstractContextManager[None]:
    """While this holds, programs compile their own parts with `compiled`."""
    return _inner(compiled)


def reset(compiler: str) -> None:
    """Forget what was compiled in this process."""
    if compiler == "torch.compile":
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
    elif compiler == "flambeau":
        import flambeau

        flambeau.compiler.reset()
