"""Library calls that answer in another layout than their fake kernels promised: copied or refused, never misread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from flambeau_inductor.config import Config
from flambeau_inductor.context import CompileContext
from flambeau_inductor.decomposition_table import decompositions
from flambeau_inductor.lowering.run import lower_graph
from flambeau_inductor.pipeline import compile_loops
from flambeau_inductor.program import BuiltProgram
from flambeau_runtime import load
from flambeau_runtime.artifact import Call, Hold, Scalar

TABLE = {op: f for op, f in decompositions().items() if f is not None}
R = torch.randn


@pytest.fixture(autouse=True)
def lies() -> Iterator[Any]:
    """Operators whose fake kernels are wrong about strides, sizes and dtype."""
    library = torch.library.Library("flambeau_test_held", "FRAGMENT")
    real: dict[str, Callable[..., Any]] = {
        "sheared": lambda x: torch.empty_strided(x.shape, (1, x.shape[0])).copy_(x + 1),
        "shorter": lambda x: x[:-1] + 1,
        "wider": lambda x: (x + 1).double(),
        "found": lambda x: torch.stack([x[x > 0], x[x > 0]], 1).t().contiguous().t(),
    }
    for name, kernel in real.items():
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, kernel, "CPU")
        if name == "found":

            def fake(x):
                return x.new_empty((torch.library.get_ctx().new_dynamic_size(), 2))

        else:
            fake = torch.empty_like
        torch.library.register_fake(f"flambeau_test_held::{name}", fake, lib=library)
    yield torch.ops.flambeau_test_held
    library._destroy()


def build(function: Callable[..., Any], args: tuple[Any, ...], mode: str = "fake", **options: Any) -> BuiltProgram:
    gm = make_fx(function, decomposition_table=TABLE, tracing_mode=mode)(*args)
    fakes = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    return compile_loops(lower_graph(gm, fakes), CompileContext(Config(**options)))


def holds(built: BuiltProgram) -> list[Hold]:
    return [i for i in built.artifact.program.instructions if isinstance(i, Hold)]


@pytest.fixture(params=["native", "python"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda built, *args: load(built.artifact, constants=built.constants, executor=request.param)(*args)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
def test_a_kernel_reads_what_the_call_meant(lies: Any, run: Any, mode: str) -> None:
    """Through a kernel, through a window, and as a result; with symbolic sizes for other sizes too."""

    def f(x: torch.Tensor) -> Any:
        y, z, w = lies.sheared(x), lies.sheared(x * 2), lies.sheared(x * 3)
        return y * 2, z, torch.mm(w[1:], y.t())

    built = build(f, (R(3, 5),), mode)
    assert [hold.op for hold in holds(built)].count("flambeau_test_held::sheared") == 3
    for shape in ((3, 5), (4, 2)) if mode == "symbolic" else ((3, 5),):
        x = R(shape)
        given = [x if spec.kind == "tensor" else shape[0] for spec in built.artifact.program.inputs]
        double, plain, product = run(built, *given)
        torch.testing.assert_close(double, (x + 1) * 2)
        torch.testing.assert_close(plain, x * 2 + 1)
        torch.testing.assert_close(product, (x * 3 + 1)[1:] @ (x + 1).t())
        assert plain.is_contiguous()


@pytest.mark.parametrize(("op", "found"), [("shorter", "float32 [2, 5]"), ("wider", "float64 [3, 5]")])
def test_another_size_or_dtype_is_an_error(lies: Any, run: Any, op: str, found: str) -> None:
    built = build(lambda x: getattr(lies, op)(x) * 2, (R(3, 5),))
    with pytest.raises(RuntimeError) as caught:
        run(built, R(3, 5))
    message = (
        f"flambeau_test_held::{op} returned {found} strides [5, 1] on cpu where float32 [3, 5] strides [5, 1] on cpu"
    )
    assert f"{message} was predicted" in str(caught.value)


def test_a_size_that_the_call_decides_is_read_first(lies: Any, run: Any) -> None:
    """The number of rows comes from the result itself; its strides are held to that."""
    built = build(lambda x: lies.found(x) * 2, (R(20),), "symbolic")
    (hold,) = holds(built)
    assert isinstance(hold.sizes[0], Scalar) and hold.strides == (2, 1)
    for x in (R(20), -torch.ones(20), torch.ones(20)):
        given = [x if spec.kind == "tensor" else 20 for spec in built.artifact.program.inputs]
        (got,) = run(built, *given)
        assert torch.equal(got, torch.stack([x[x > 0], x[x > 0]], 1) * 2)


def test_only_where_the_layout_matters() -> None:
    """A result that is handed whole to another call needs no check: that call asks the tensor itself."""
    built = build(lambda x, w: torch.mm(torch.mm(x, w), w) + 1, (R(4, 4), R(4, 4)))
    calls = [i for i in built.artifact.program.instructions if isinstance(i, Call)]
    assert len(calls) == 2 and [hold.reg for hold in holds(built)] == [calls[1].outs[0].index]  # type: ignore[union-attr]


def test_without_asserts_only_calls_that_choose_their_layout_are_held() -> None:
    """A convolution may answer channels-last or row-major, whatever was predicted."""

    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = torch.conv2d(x, w)
        return y * 2, torch.mm(y.flatten(1), y.flatten(1).t()) + 1

    built = build(f, (R(2, 3, 8, 8), R(4, 3, 3, 3)), size_asserts=False)
    assert [hold.op for hold in holds(built)] == ["aten::convolution"]
