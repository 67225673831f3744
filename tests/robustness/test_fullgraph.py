"""`fullgraph=True` is honoured or raises; an error of the program stays the program's, and none of ours is hidden."""

from __future__ import annotations

import contextlib
import operator
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import flambeau
import flambeau_autograd
from flambeau.errors import BackendError, GraphBreakError, GraphNotCompiled
from flambeau_capture.errors import InternalError, RecompileLimitError
from tests.comparison import assert_same

pytestmark = pytest.mark.judges_itself  # what runs in eager, and what must not, is what these tests are about
X = torch.linspace(-2, 2, 12).reshape(3, 4)


class Passing(TorchDispatchMode):
    """A dispatch mode that changes nothing."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


async def coroutine(x: Tensor) -> Tensor:
    return x + 1


def generator(x: Tensor) -> Any:
    yield x + 1


def writes_one_reads_another(a: Tensor, b: Tensor) -> Tensor:
    a.add_(1)
    return b * 2


@contextlib.contextmanager
def only_manager() -> Any:
    yield 3


UNCAPTURED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a function in C": (operator.attrgetter("real"), (X,)),
    "coroutine": (coroutine, (X,)),
    "generator": (generator, (X,)),
    "disabled": (flambeau.compiler.disable(lambda x: x + 1), (X,)),
    "wrapper of the standard library": (only_manager, ()),
    "overlapping inputs": (writes_one_reads_another, (torch.ones(4)[:3], torch.ones(4)[:3])),
}


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("name", UNCAPTURED)
def test_what_cannot_be_captured_raises(name: str) -> None:
    """At every call, not only at the first; without `fullgraph` it runs."""
    function, args = UNCAPTURED[name]
    if name == "overlapping inputs":
        base = torch.ones(4)
        args = (base[:3], base[1:])
    compiled = flambeau.compile(function, fullgraph=True, backend="eager")
    for _ in range(2):
        with pytest.raises(GraphBreakError):
            compiled(*args)
    flambeau.compile(function, backend="eager")(*args)


def test_under_a_dispatch_mode_it_raises() -> None:
    """And works again without the mode."""
    compiled = flambeau.compile(lambda x: x + 1, fullgraph=True)
    with Passing(), pytest.raises(GraphBreakError, match="dispatch mode"):
        compiled(X)
    assert_same(compiled(X), X + 1)


def test_past_the_recompile_limit_it_raises() -> None:
    """Every time; what was compiled still runs."""
    compiled = flambeau.compile(lambda x, n: x * len(n), fullgraph=True, recompile_limit=2)
    for text in ("a", "bb"):
        assert_same(compiled(X, text), X * len(text))
    for _ in range(2):
        with pytest.raises(RecompileLimitError, match="limit of 2"):
            compiled(X, "ccc")
    assert_same(compiled(X, "a"), X)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_graph_that_no_backend_compiles_raises(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the reason; without `fullgraph` eager runs it, and `explain` says why."""

    def refuse(*args: Any, **more: Any) -> Any:
        raise flambeau_autograd.UnsupportedGraph("something that is not modelled", "try without it")

    monkeypatch.setattr("flambeau_autograd.pipeline.build_joint", refuse)
    compiled = flambeau.compile(lambda x: x.exp() - 41, fullgraph=True, backend=backend)
    with pytest.raises(GraphNotCompiled, match=r"something that is not modelled\n.*hint: try without it"):
        compiled(X)
    assert_same(flambeau.compile(lambda x: x.exp() - 41, backend=backend)(X), X.exp() - 41)
    if backend == "inductor":
        assert "not modelled" in str(flambeau.explain(lambda x: x.exp() - 41)(X))


def test_a_frame_without_tensors_is_a_graph_too() -> None:
    """Nothing was left to plain Python."""
    assert flambeau.compile(lambda n: n + 1, fullgraph=True)(3) == 4


def test_another_thread_is_no_failure() -> None:
    """While one thread compiles, another runs the frame in eager."""
    started, go_on = threading.Event(), threading.Event()

    def slow(gm: Any, inputs: Any) -> Any:
        started.set()
        assert go_on.wait(60)
        return gm.forward

    compiled = flambeau.compile(lambda x: x + 1, fullgraph=True, backend=slow)
    results: list[Tensor] = []
    thread = threading.Thread(target=lambda: results.append(compiled(X)))
    thread.start()
    assert started.wait(60)
    results.append(compiled(X))
    go_on.set()
    thread.join()
    assert_same(results, [X + 1, X + 1])


class Own(Exception):
    """An exception of the program's."""


def raises_its_own(x: Tensor, depth: int = 2) -> Tensor:
    if depth:
        return raises_its_own(x + 1, depth - 1)
    raise Own("mine", 3)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_an_exception_of_the_program_stays_its_own(fullgraph: bool) -> None:
    """Type, arguments and the line that raised."""
    compiled = flambeau.compile(raises_its_own, fullgraph=fullgraph)
    for _ in range(2):
        with pytest.raises(Own) as caught:
            compiled(X)
        assert caught.value.args == ("mine", 3)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'raise Own("mine", 3)'


def fault(*args: Any, **more: Any) -> Any:
    raise ZeroDivisionError("a fault of ours")


FAULTS = (
    "flambeau_capture.pipeline.trace_frame",
    "flambeau_capture.hook.build",
    "flambeau_autograd.functional.predictions._with_strides",
    "flambeau_autograd.pipeline.build_joint",
    "flambeau_autograd.pipeline._cut",
    "flambeau_inductor.pipeline.run_passes",
    "flambeau_inductor.pipeline.lower_graph",
    "flambeau_inductor.pipeline.compile_loops",
    "flambeau_inductor.schedule.plan.improve",
    "flambeau_inductor.codegen.cpp.loops.LoopWriter.__init__",
    "flambeau_runtime.build_libraries",
    "flambeau_runtime.load",
    "flambeau.stack.resolve_stages",
    "flambeau.stack._compile_both",
    "flambeau.stack._assemble",
    "flambeau.stack.graph_key",
    "flambeau.stack._join",
)


@pytest.mark.parametrize("place", FAULTS)
def test_a_fault_of_ours_is_one_warning_or_an_error(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stage it is in: by default eager's result; without suppression, or under `fullgraph`, an error that says whose fault it is."""
    monkeypatch.setattr(place, fault)

    def program(x: Tensor) -> Tensor:
        return x.exp() - 43

    backend = "aot_eager" if place.endswith("_join") else "inductor"
    options = {"suppress_errors": True, "fx_graph_cache": place.endswith("graph_key")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = flambeau.compile(program, backend=backend, options=options)
        for _ in range(2):
            assert_same(compiled(X), program(X))
    (warning,) = caught
    assert "a fault of ours" in str(warning.message) and "FLAMBEAU_SUPPRESS_ERRORS=0" in str(warning.message)
    for strict in ({"options": {**options, "suppress_errors": False}}, {"options": options, "fullgraph": True}):
        with pytest.raises(InternalError, match=r"a fault of ours[^§]*hint: ") as raised:
            flambeau.compile(program, backend=backend, **strict)(X)
        assert raised.value.__cause__ is not None


def test_modules_and_their_calls_are_held_to_it() -> None:
    """A module whose forward breaks raises, one that does not is one graph."""

    class Breaking(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print(end="")
            return x + 1

    with pytest.raises(GraphBreakError):
        flambeau.compile(Breaking(), fullgraph=True, backend="eager")(X)
    linear = nn.Linear(4, 2)
    assert_same(flambeau.compile(linear, fullgraph=True, backend="eager")(X), linear(X))


def test_a_backend_of_the_users_keeps_its_error() -> None:
    """What its callable raises at run time is not repeated in eager: it may be meant."""

    def backend(gm: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise LookupError("meant")

        return run

    with pytest.raises(LookupError, match="meant"):
        flambeau.compile(lambda x: x + 1, backend=backend)(X)
    with pytest.raises(BackendError, match="a fault of ours"):
        flambeau.compile(lambda x: x + 1, backend=fault)(X)
