"""Declared shapes: what is symbolic, what is refused, and which inputs a declaration reaches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau_capture
from flambeau_capture.errors import DynamicShapeError, OptionError

spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")


class Counted:
    """A function compiled with a declaration, and how often that was."""

    def __init__(self, function: Callable[..., Any], shapes: Any, **options: Any) -> None:
        self.compiles = 0
        self.plain = function
        self.region = flambeau_capture.make_region(function, self.backend, shapes_spec=shapes, **options)

    def backend(self, graph: Any, inputs: Any) -> Any:
        self.compiles += 1
        return graph.forward

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        assert torch.equal(self.region(*args, **kwargs), self.plain(*args, **kwargs))


def total(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
    return x.sum(0) + y.mean() + n


def test_variables_terms_and_numbers() -> None:
    """One graph for all sizes, those of one element and numbers 0 and 1 among them."""
    size = spec.ShapeVar("size", max=64)
    shapes = {"x": spec.TensorSpec([size, None]), "y": spec.TensorSpec([size * 2]), "n": spec.IntVar("n", min=0)}
    called = Counted(total, shapes)
    for rows, n in ((3, 5), (1, 0), (5, 1), (2, 999)):
        called(torch.ones(rows, 4), torch.ones(2 * rows), n)
    assert called.compiles == 1
    called(torch.ones(3, 5), torch.ones(6), 5)
    assert called.compiles == 2, "a size that is not declared is a constant"


@pytest.mark.parametrize(
    ("rows", "others", "n", "words"),
    [
        (3, (7,), 1, r"dimension 0 of .*y.* is 7, and declared to be 2\*size, with size = 3"),
        (65, (130,), 1, "outside the range"),
        (3, (6,), -1, "is -1, and declared to be at least 0"),
        (3, (6,), 101, "is 101, and declared to be at most 100"),
        (3, (6,), 1.5, "declared as n, and is 1.5"),
        (3, (6, 1), 1, "has 2 dimensions, and 1 are declared"),
    ],
)
def test_a_call_that_is_not_as_declared_is_an_error(rows: int, others: tuple[int, ...], n: Any, words: str) -> None:
    """Also after one that is, whose entry does not take it."""
    size = spec.ShapeVar("size", max=64)
    shapes = {
        "x": spec.TensorSpec([size, None]),
        "y": spec.TensorSpec([size * 2]),
        "n": spec.IntVar("n", min=0, max=100),
    }
    called = Counted(total, shapes)
    for _ in range(2):
        with pytest.raises(DynamicShapeError, match=words):
            called.region(torch.ones(rows, 4), torch.ones(others), n)
        called(torch.ones(2, 4), torch.ones(4), 2)
    assert called.compiles == 1


def test_one_variable_twice_and_assumptions() -> None:
    """Sizes of one name are one size; what is assumed of variables is checked for each call."""
    size = spec.ShapeVar("size")
    shapes = spec.ShapesSpec(
        {"x": spec.TensorSpec([size]), "y": spec.TensorSpec([size])}, assumptions=[size % 2 == 0, size > 3]
    )
    called = Counted(lambda x, y: x + y, shapes, fullgraph=True)
    for rows in (4, 6, 8):
        called(torch.ones(rows), torch.ones(rows))
    assert called.compiles == 1
    with pytest.raises(DynamicShapeError, match="is 4, and size is 6 elsewhere"):
        called.region(torch.ones(6), torch.ones(4))
    for rows in (2, 5):
        with pytest.raises(DynamicShapeError, match=f"is assumed, with size = {rows}"):
            called.region(torch.ones(rows), torch.ones(rows))


def test_numbers_that_are_declared_or_not() -> None:
    """An int is the one that is declared; one that is not declared is a constant, a float too."""
    called = Counted(lambda x, n, m, f: x * n + m * f, {"n": 3})
    called(torch.ones(2), 3, 4, 0.5)
    with pytest.raises(DynamicShapeError, match="is 4, and declared to be 3"):
        called.region(torch.ones(2), 4, 4, 0.5)
    called(torch.ones(2), 3, 5, 0.5)
    called(torch.ones(2), 3, 6, 0.25)
    assert called.compiles == 3


def test_a_number_that_the_program_makes_a_constant_of() -> None:
    def unrolled(x: torch.Tensor, n: int) -> torch.Tensor:
        for i in range(n):
            x = x + i
        return x

    with pytest.raises(DynamicShapeError, match="declared to change, but the program needs it to be 3"):
        Counted(unrolled, {"n": spec.IntVar("n")}).region(torch.ones(2), 3)


def test_containers_and_further_arguments() -> None:
    """Items of dicts and lists, attributes of objects, `*args` and `**kwargs`."""
    size = spec.ShapeVar()

    def function(*args: Any, **kwargs: Any) -> Any:
        return args[0]["a"][1] * kwargs["k"]

    inside = spec.DictSpec({"a": spec.SeqSpec([None, spec.TensorSpec([size])])})
    called = Counted(function, {"*args": [inside], "**kwargs": {"k": spec.IntVar()}})
    for rows in (1, 3, 4):
        called({"a": [1, torch.ones(rows)]}, k=rows)
    assert called.compiles == 1


def test_modules() -> None:
    """The parameters of `forward`, however they are given, and what `self` has."""
    size = spec.ShapeVar("size")
    linear = torch.nn.Linear(4, 4)
    called = Counted(linear.__call__, {"input": spec.TensorSpec([size, None])})
    for rows in (1, 2, 3):
        called(torch.ones(rows, 4))
    assert called.compiles == 1
    for rows in (1, 2, 3):
        called(input=torch.ones(rows, 4))
    assert called.compiles == 1
    with torch.no_grad():
        linear.register_forward_hook(lambda *_: None)
        for rows in (1, 2, 3):
            called(torch.ones(rows, 4))
        assert called.compiles == 2
        for rows in (1, 2, 3):
            called(input=torch.ones(rows, 4))
    assert called.compiles == 3

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale

    module = Scaled()
    sizes = spec.TensorSpec([size])
    called = Counted(module.__call__, {"x": sizes, "self": spec.ObjectSpec({"scale": sizes})})
    for rows in (3, 5, 7):
        module.scale = torch.ones(rows)
        called(torch.ones(rows))
    assert called.compiles == 1


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Called:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) + 1

    return wrapper


def renaming(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(first: Any, /, *, scale: int = 2) -> Any:
        return function(first) * scale

    return wrapper


class Wrapped(Doubling):
    forward = wrapped(Doubling.forward)


class OwnCall(Doubling):
    __call__ = wrapped(torch.nn.Module.__call__)


def without_self() -> torch.nn.Module:
    module = torch.nn.Module()
    module.forward = lambda x: x * 2
    return module


CALLABLES = {
    "an object": Called(),
    "a module": Doubling(),
    "a partial of a module": functools.partial(Doubling()),
    "a partial of an object": functools.partial(Called()),
    "a wrapper": wrapped(lambda x: x * 2),
    "a wrapper with other names": renaming(lambda x: x * 2),
    "a wrapped method": Wrapped(),
    "a call of a wrapped method": Wrapped().__call__,
    "a module with a call of its own": OwnCall(),
    "a module with a function for its forward": without_self(),
    "a function that keeps results": functools.lru_cache(lambda x: x * 2),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_what_has_its_parameters_elsewhere(name: str) -> None:
    """A declaration is one of what the caller gives, whatever is called."""
    sizes = spec.TensorSpec([spec.ShapeVar()])
    declared = {"*args": [sizes]} if name == "a module with a call of its own" else {"x": sizes}
    called = Counted(CALLABLES[name], declared, suppress_errors=False)
    for rows in (1, 2, 3):
        called(torch.ones(rows))
    assert called.compiles == 1


def test_parameters_that_a_partial_fills_in() -> None:
    def function(x: torch.Tensor, y: torch.Tensor, n: int) -> torch.Tensor:
        return x * y + n

    size = spec.ShapeVar()
    called = Counted(functools.partial(function, n=3), {"x": spec.TensorSpec([size]), "y": spec.TensorSpec([size])})
    for rows in (1, 2, 3):
        called(torch.ones(rows), y=torch.ones(rows))
    assert called.compiles == 1


def test_a_name_that_only_keywords_take() -> None:
    called = Counted(lambda **given: given["x"] * 2, {"x": spec.TensorSpec([spec.ShapeVar()])})
    for rows in (1, 2, 3):
        called(x=torch.ones(rows))
    assert called.compiles == 1


def test_a_closure_has_no_declared_argument() -> None:
    """A local of the name of a wrapped function's parameter is another thing."""
    x = torch.ones(3)

    def function(*args: torch.Tensor) -> torch.Tensor:
        return x.sum() + args[0]

    function.__wrapped__ = lambda x: x  # type: ignore[attr-defined]
    called = Counted(function, {"x": spec.TensorSpec([spec.ShapeVar()])})
    for rows in (1, 2):
        called(torch.ones(rows))
    x = torch.ones(4)
    called(torch.ones(2))
    assert called.compiles == 2


def test_frames_without_locals_behind_a_break() -> None:
    def scale() -> torch.Tensor:
        flambeau_capture.graph_break()
        return torch.full((), 2.0)

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * scale()

    called = Counted(Scaled().__call__, {"x": spec.TensorSpec([spec.ShapeVar()])}, suppress_errors=False)
    called(torch.ones(2))


def test_what_no_function_is_known_of() -> None:
    with pytest.raises(OptionError, match="nothing tells which function"):
        Counted(torch.add, {"input": None})
    framed = functools.update_wrapper(lambda *args: torch.add(*args), torch.add)
    with pytest.raises(OptionError, match="nothing tells the parameters"):
        Counted(framed, {"input": None})
    called = Counted(framed, {"*args": [spec.TensorSpec([spec.ShapeVar()])]})
    for rows in (1, 2, 3):
        called(torch.ones(rows), 2)
    assert called.compiles == 1


def test_behind_a_break_sizes_are_learnt() -> None:
    """The declaration is one of the function's own parameters."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        flambeau_capture.graph_break()
        return y + 1

    called = Counted(function, {"x": spec.TensorSpec([spec.ShapeVar()])})
    for rows in (2, 3, 4, 5):
        called(torch.ones(rows))
    assert called.compiles == 1 + 2


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"z": None}, "names z, and the parameters are x"),
        ({"*args": []}, None),
        ({"*args": [None]}, r"names \*args"),
        ({"x": spec.TensorSpec([spec.ShapeVar("a") + 1])}, "relates a to others"),
        (3, "takes a ShapesSpec"),
    ],
)
def test_wrong_declarations(shapes: Any, words: str | None) -> None:
    if words is None:
        Counted(lambda x: x, shapes)
        return
    with pytest.raises(OptionError, match=words):
        Counted(lambda x: x, shapes)
