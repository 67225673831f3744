"""What operations of torch warn of is told as in eager: as often, with the same category and text, for the same line of the program."""

from __future__ import annotations

import itertools
import linecache
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flambeau

_numbers = itertools.count()
ROW, CUBE, COMPLEX = torch.ones(1, 4), torch.ones(2, 3, 4), torch.ones(3, dtype=torch.complex64)
CASES: tuple[tuple[str, Tensor], ...] = (
    ("x.std(0)", ROW),
    ("torch.var_mean(x, 0)", ROW),
    ("x[:, 0].std()", COMPLEX[:1, None]),
    ("x.to(torch.float32)", COMPLEX),
    ("torch.empty(3).copy_(x)", COMPLEX),
    ("x.copy_(1j)", torch.ones(2)),
    ("torch.zeros(3).scatter(0, torch.tensor([0]), torch.ones(1), reduce='add') + x[0, 0]", ROW),
    ("torch.bucketize(x, torch.ones(4, 2)[:, 0])", ROW),
    ("F.dropout2d(x, 0.5, False)", CUBE),
    ("F.mse_loss(x, x[:1])", CUBE),
    ("F.kl_div(x, x, reduction='mean')", CUBE),
    ("F.mse_loss(x, x, size_average=False)", CUBE),
    ("F.softmax(x)", ROW),
    ("x.T", CUBE),
    ("torch.meshgrid(x[0], x[0])[0]", ROW),
    ("x.add(1, x)", ROW),
    ("torch.tensor(x)", ROW),
)


@pytest.fixture(autouse=True)
def each_time() -> Iterator[None]:
    """Warnings that torch gives once in a process are given each time."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _program(expression: str) -> tuple[Callable[..., Any], str]:
    text = f"import torch, torch.nn.functional as F\n\ndef f(x):\n    y = {expression}\n    return y\n"
    name = f"<warns {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    space: dict[str, Any] = {}
    exec(compile(text, name, "exec"), space)
    return space["f"], name


def _told(function: Callable[..., Any], name: str, x: Tensor, action: Any) -> list[Any]:
    told = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            try:
                function(x)
            except Warning as error:
                told.append((type(error), str(error)))
        told += [(w.category, str(w.message), "program" if w.filename == name else w.filename, w.lineno) for w in found]
    return told


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("action", ["always", "default", "ignore"])
@pytest.mark.parametrize(("expression", "x"), CASES, ids=[text for text, _ in CASES])
def test_an_operation_warns_as_in_eager(expression: str, x: Tensor, action: str, backend: str) -> None:
    """At each call, or as often as the filters let it."""
    expected = _told(*_program(expression), x, action)
    assert bool(expected) == (action != "ignore")
    function, name = _program(expression)
    assert _told(flambeau.compile(function, backend=backend), name, x, action) == expected


@pytest.mark.parametrize(("expression", "x"), CASES, ids=[text for text, _ in CASES])
def test_a_warning_is_an_error_for_who_wants_it_so(expression: str, x: Tensor) -> None:
    """Also where the function was compiled with another filter."""
    expected = _told(*_program(expression), x, "error")
    function, name = _program(expression)
    compiled = flambeau.compile(function, backend="aot_eager")
    assert _told(compiled, name, x, "always") and len(expected) == 2
    assert _told(compiled, name, x, "error") == expected


@pytest.mark.parametrize("expression", ["x.std(0)", "F.softmax(x)"])
def test_kernels_of_ours_warn_too(expression: str) -> None:
    """Where no kernel of torch's runs; and the warning costs no graph."""
    expected = _told(*_program(expression), ROW, "always")
    function, name = _program(expression)
    assert _told(flambeau.compile(function, fullgraph=True), name, ROW, "always") == expected


def test_a_number_is_copied_without_a_word() -> None:
    """What is no tensor has no dtype to lose."""
    function, name = _program("x.select(1, 0).copy_(1)")
    assert _told(flambeau.compile(function, backend="aot_eager", fullgraph=True), name, ROW.clone(), "always") == []


def test_a_warning_for_a_process_is_given_once() -> None:
    """By compiled code or by eager, and costs no graph."""
    function, name = _program("x.mH + torch.searchsorted(torch.ones(4, 2)[:, 0], x)")
    x = torch.ones(2, 2)
    torch.set_warn_always(False)
    compiled = flambeau.compile(function, backend="aot_eager", fullgraph=True)
    told = _told(compiled, name, x, "always")
    assert len(told) <= 1 and all(entry[2:] == ("program", 4) for entry in told)
    assert _told(*_program("torch.searchsorted(torch.ones(4, 2)[:, 0], x)"), x, "always") == []


@pytest.mark.compiles(graphs=0)
def test_the_gradient_of_a_result_is_asked_for_by_the_program_alone() -> None:
    """Looking at it warns, and only the program looks."""
    x = (torch.ones(2, requires_grad=True) * 1).requires_grad_()
    expected = _told(*_program("x.grad"), x, "always")
    function, name = _program("x.grad")
    assert _told(flambeau.compile(function, backend="eager"), name, x, "always") == expected


def test_filters_by_message_are_heeded() -> None:
    """A filter that names a part of the text is as good as one without."""
    compiled = flambeau.compile(_program("F.softmax(x)")[0], backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(ROW)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="Implicit dimension")
        with pytest.raises(UserWarning, match="Implicit dimension"):
            compiled(ROW)


class Warns(torch.nn.Module):
    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def forward(self, x: Tensor) -> Tensor:
        warnings.warn("told by a module", stacklevel=self.level)
        return x + 1


MODULES = {
    "softmax": torch.nn.Softmax(),
    "softmin": torch.nn.Softmin(),
    "inside": torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LogSoftmax()),
    **{f"level {level}": torch.nn.Sequential(Warns(level)) for level in range(1, 9)},
}


@pytest.mark.parametrize("call", ["MODULE(x)", "MODULE._call_impl(x)", "MODULE.forward(x)"])
@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_the_calls_of_a_module_count_among_those_above_a_warning(module: torch.nn.Module, call: str) -> None:
    """Python calls `forward` from two functions of `nn.Module`, which the trace leaves out; the place may be in one of them."""
    told = []
    for compiled in (False, True):
        function, name = _program(call)
        function.__globals__["MODULE"] = module  # type: ignore[attr-defined]
        told.append(_told(flambeau.compile(function, backend="eager") if compiled else function, name, ROW, "always"))
    assert told[0] == told[1] and len(told[0]) == 2


def test_a_warning_that_tells_of_sizes_which_change() -> None:
    """Of those that are there, not of what they are called while a frame is traced."""

    def loss(x: Tensor) -> Tensor:
        return torch.nn.functional.mse_loss(x, x.sum())

    told = []
    for function in (loss, flambeau.compile(loss, dynamic=True)):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            values = [function(torch.ones(size)) for size in (3, 5)]
        told.append([str(warning.message) for warning in heard])
        assert torch.equal(values[1], torch.tensor(16.0))
    assert told[0] == told[1] and "torch.Size([5])" in told[0][1]
