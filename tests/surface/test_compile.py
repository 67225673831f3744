"""The arguments of `flambeau.compile`, and what a program asks the compiler, as torch's documentation has them used."""

from __future__ import annotations

import pytest
import torch

import flambeau
from flambeau import compiler
from flambeau.testing import CompileCounter

from .rows import calls


def _branch(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


@calls("compile", "model", "backend")
@calls("compiler", "compile")
def test_functions_modules_and_decorators() -> None:
    """A function, a module, and, without a model, a decorator; `compiler.compile` is the same function."""
    assert compiler.compile is flambeau.compile
    counter = CompileCounter()
    x = torch.randn(4)

    @flambeau.compile(backend=counter)
    def double(x):
        return x * 2

    assert torch.equal(double(x), x * 2) and counter.frame_count == 1
    linear = torch.nn.Linear(4, 4)
    assert torch.allclose(flambeau.compile(linear)(x), linear(x))
    assert torch.equal(flambeau.compile(torch.sin, backend="eager")(x), x.sin())


@calls("compile", "fullgraph")
def test_fullgraph() -> None:
    """A graph break is an error; sizes that data decide are captured."""
    with pytest.raises(flambeau.errors.GraphBreakError):
        flambeau.compile(_branch, fullgraph=True)(torch.ones(3))
    counter = CompileCounter()
    chosen = flambeau.compile(lambda x: x[x > 0] * 2, fullgraph=True, backend=counter)
    x = torch.randn(16)
    assert torch.equal(chosen(x), x[x > 0] * 2) and counter.frame_count == 1
    with pytest.raises(flambeau.errors.InvalidOption):
        flambeau.compile(_branch, fullgraph="yes")


@calls("compile", "dynamic")
def test_dynamic() -> None:
    """None: the second size makes it symbolic; True: the first does; False: each size is compiled."""
    for dynamic, compiles in ((None, 2), (True, 1), (False, 4)):
        counter = CompileCounter()
        double = flambeau.compile(lambda x: x * 2, dynamic=dynamic, backend=counter)
        for size in (3, 4, 5, 6):
            assert torch.equal(double(torch.ones(size)), torch.full((size,), 2.0))
        assert counter.frame_count == compiles, dynamic


@calls("compile", "mode", "options")
def test_mode_and_options() -> None:
    """Each reaches the backend; together they are refused, and so are unknown names."""
    plain = flambeau.explain(lambda x: x.exp() + 1)(torch.randn(64))
    lite = flambeau.explain(lambda x: x.exp() + 1, mode="lite")(torch.randn(64))
    assert plain.programs[0].kernels == 1
    assert lite.programs[0].kernels == 0
    same = flambeau.explain(lambda x: x.exp() + 1, options={"fallback_by_default": True})(torch.randn(64))
    assert same.programs[0].kernels == 0
    with pytest.raises(flambeau.errors.InvalidOption):
        flambeau.compile(_branch, mode="default", options={"max_autotune": True})
    with pytest.raises(flambeau.errors.UnknownName):
        flambeau.compile(_branch, mode="fastest")


@calls("compile", "disable")
def test_disable() -> None:
    """The function comes back unchanged."""
    assert flambeau.compile(_branch, disable=True) is _branch


@calls("compile", "name")
def test_name(capsys: pytest.CaptureFixture[str]) -> None:
    """The label is part of the region's events."""
    compiler.set_logs("graph_code")
    try:
        flambeau.compile(lambda x: x + 1, name="the head", backend="eager")(torch.ones(2))
    finally:
        compiler.set_logs()
    assert "the head" in capsys.readouterr().err


@calls("compile", "recompile_limit")
@pytest.mark.falls_back("recompile limit")
def test_recompile_limit() -> None:
    """Past it new shapes run in eager; under fullgraph they are an error. A number below one is refused."""
    counter = CompileCounter()
    double = flambeau.compile(lambda x: x * 2, dynamic=False, recompile_limit=2, backend=counter)
    for size in (3, 4, 5, 6):
        assert torch.equal(double(torch.ones(size)), torch.full((size,), 2.0))
    assert counter.frame_count == 2
    strict = flambeau.compile(lambda x: x * 2, dynamic=False, fullgraph=True, recompile_limit=1, backend="eager")
    strict(torch.ones(3))
    with pytest.raises(flambeau.FlambeauError):
        strict(torch.ones(4))
    with pytest.raises(flambeau.errors.InvalidOption):
        flambeau.compile(_branch, recompile_limit=-1)


@calls("compile", "isolate_recompiles")
@pytest.mark.falls_back("recompile limit")
def test_isolate_recompiles() -> None:
    """Two calls for one function, with one backend, share neither entries nor the limit."""
    counter = CompileCounter()

    def double(x):
        return x * 2

    arguments = {"backend": counter, "dynamic": False, "recompile_limit": 1, "isolate_recompiles": True}
    one, other = flambeau.compile(double, **arguments), flambeau.compile(double, **arguments)
    for size in (3, 4):
        one(torch.ones(size))
    assert counter.frame_count == 1
    other(torch.ones(4))
    assert counter.frame_count == 2, "an entry of its own, under a limit of its own"
    with pytest.raises(flambeau.errors.InvalidOption):
        flambeau.compile(double, isolate_recompiles="yes")


@calls("compile", "shapes_spec")
def test_shapes_spec() -> None:
    """Declared sizes and ints are symbolic at once, sizes in relation to each other; others are constants, and a call that is not so is an error."""
    spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")
    counter = CompileCounter()
    rows = spec.ShapeVar("rows", max=64)
    params = {"x": spec.TensorSpec([rows, None]), "y": spec.TensorSpec([rows * 2]), "n": spec.IntVar("n")}

    def f(x, y, n):
        return x.sum(0) + y.sum() * n

    declared = flambeau.compile(f, backend=counter, shapes_spec=spec.ShapesSpec(params, assumptions=[rows > 1]))
    for size in (2, 5, 9):
        x, y = torch.ones(size, 4), torch.ones(size * 2)
        assert torch.equal(declared(x, y, size), f(x, y, size))
    assert counter.frame_count == 1
    declared(torch.ones(2, 3), torch.ones(4), 2)
    assert counter.frame_count == 2
    for size, other in ((65, 130), (1, 2), (4, 4)):
        with pytest.raises(flambeau.errors.FlambeauError, match=r"declared|marked|assumed"):
            declared(torch.ones(size, 4), torch.ones(other), 1)
    linear = torch.nn.Linear(4, 4)
    whole = flambeau.compile(linear, shapes_spec={"input": spec.TensorSpec([rows, None])}, fullgraph=True)
    with flambeau.compiler.config.patch(error_on_recompile=True):
        for size in (3, 1, 7):
            x = torch.randn(size, 4)
            assert torch.allclose(whole(x), linear(x), atol=1e-6)
    with pytest.raises(flambeau.errors.InvalidOption):
        flambeau.compile(f, shapes_spec=params, dynamic=True)


@calls("compiler", "is_compiling", "is_dynamo_compiling")
def test_is_compiling() -> None:
    """True where capture asks, False in Python."""

    def f(x):
        both = compiler.is_compiling() and compiler.is_dynamo_compiling()
        return x + 1 if both else x - 1

    x = torch.zeros(2)
    assert torch.equal(flambeau.compile(f, fullgraph=True)(x), x + 1)
    assert torch.equal(f(x), x - 1)


@calls("helpers", "config.patch")
@calls("compiler", "config")
def test_config_patch() -> None:
    """A setting for the compile calls of a block, and as it was behind it; an assignment until it is taken back."""
    with compiler.config.patch(error_on_recompile=True):
        double = flambeau.compile(lambda x: x * 2, dynamic=False, backend="eager")
    double(torch.ones(3))
    with pytest.raises(RuntimeError):
        double(torch.ones(4))
    before = compiler.config.recompile_limit
    compiler.config.recompile_limit = 3
    try:
        assert compiler.config.recompile_limit == 3
    finally:
        del compiler.config.recompile_limit
    assert compiler.config.recompile_limit == before
    assert compiler.config.error_on_recompile is False
