"""Positions as values, masks inside masks and what is computed outside them equal their meaning, element by element."""

from __future__ import annotations

import pytest
import torch

from flambeau_inductor.expr import Expr, Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.evaluate import run_graph
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import Pointwise, Reduction, make_axes
from flambeau_inductor.ir.scalar import Scalar
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

CPU = torch.device("cpu")
SHAPE = (7, 37)
AXES = make_axes(tuple(map(Int, SHAPE)))
I, J = (axis.symbol for axis in AXES)
F32, I64 = torch.float32, torch.int64
X = sc.load("x", I * SHAPE[1] + J, F32)


def at(e: Expr, dtype: torch.dtype = I64) -> Scalar:
    """A position as a value."""
    return sc.index_value(e, dtype)


def f(name: str, *args: Scalar) -> Scalar:
    """An op."""
    return sc.op(name, *args)


def real(value: Scalar) -> Scalar:
    """As a float."""
    return sc.op("to_dtype", value, dtype=F32)


def number(value: float) -> Scalar:
    """A constant."""
    return sc.constant(value, F32)


EARLY, LATE, ROW = f("lt", at(J), at(Int(20))), f("ge", at(J), at(Int(5))), f("lt", at(I), at(Int(3)))
INSIDE = sc.load("x", I * SHAPE[1] + J - 5, F32)

POSITIONS = {
    "along the lanes": at(J),
    "in steps": at(J * 3 + I),
    "backwards": at(36 - J),
    "the same in every lane": at(I * 2),
    "no constant step": at(J // 4 + J % 3),
    "as float": at(J * 2 + 1, F32),
    "as int32": at(J * 2, torch.int32),
    "too wide for 32 bits": at(J * 2**31 + I),
}
MASKS = {
    "by lane": sc.masked(LATE, INSIDE, number(-1.0)),
    "by row": sc.masked(ROW, X, number(-1.0)),
    "a mask by lane in one by row": sc.masked(ROW, sc.masked(LATE, INSIDE, number(2.0)), number(-1.0)),
    "a mask by row in one by lane": sc.masked(LATE, sc.masked(ROW, INSIDE, number(2.0)), number(-1.0)),
    "two by lane": sc.masked(LATE, sc.masked(EARLY, INSIDE, number(2.0)), number(-1.0)),
    "what needs no memory inside": sc.masked(
        LATE, f("add", INSIDE, f("mul", real(at(J * 3)), real(at(I)))), number(-1.0)
    ),
    "what needs no memory inside two": sc.masked(
        ROW, sc.masked(LATE, f("add", INSIDE, f("mul", real(at(J * 5)), real(at(I * 3)))), number(2.0)), number(-1.0)
    ),
    "a value of the row inside": sc.masked(
        LATE, f("add", INSIDE, f("exp", sc.load("x", I * SHAPE[1], F32))), number(-1.0)
    ),
    "shared by both branches": f(
        "add",
        sc.masked(LATE, f("mul", INSIDE, real(at(I * 7))), number(1.0)),
        sc.masked(EARLY, f("mul", X, real(at(I * 7))), number(0.0)),
    ),
}


def _same(operations: list[Pointwise] | list[Reduction]) -> None:
    given = Buffer("x", Layout.contiguous(tuple(map(Int, SHAPE)), F32, CPU))
    outs = [operation.out for operation in operations]
    buffers = {buffer.name: buffer for buffer in (given, *outs)}
    graph = Graph((TensorInput(given),), (), tuple(operations), tuple(map(Ref.whole, outs)), buffers)
    # The lanes of a sum are added in an order of their own.
    torch.manual_seed(0)
    x = torch.randn(SHAPE)
    found, wanted = load(compile_loops(graph).artifact)(x), run_graph(graph, [x])
    for operation, one, other in zip(operations, found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4, msg=lambda m, n=operation.value: f"{n}: {m}")


def _out(n: int, dtype: torch.dtype, *sizes: int) -> Buffer:
    return Buffer(f"buf{n}", Layout.contiguous(tuple(map(Int, sizes)), dtype, CPU))


@pytest.mark.parametrize("values", [POSITIONS, MASKS], ids=["positions", "masks"])
def test_in_every_lane(values: dict[str, Scalar]) -> None:
    """Stored as they are, with a tail shorter than a vector."""
    _same([Pointwise(_out(n, value.dtype, *SHAPE), AXES, value) for n, value in enumerate(values.values())])


@pytest.mark.parametrize("kept", [0, 1], ids=["rows", "columns"])
def test_below_a_reduction(kept: int) -> None:
    """The same inside loops of their own."""
    values = [value for value in (*POSITIONS.values(), *MASKS.values()) if value.dtype is F32]
    outer, inner = (AXES[kept],), (AXES[1 - kept],)
    _same([Reduction(_out(n, F32, SHAPE[kept]), outer, inner, "sum", value) for n, value in enumerate(values)])


def test_each_value_is_computed_once_and_outside_the_loops_that_do_not_change_it() -> None:
    """A value of the row stands before the loop over lanes; what a mask needs and has been computed before it is not computed again."""
    row = f("exp", sc.load("x", I * SHAPE[1], F32))
    lane = f("sin", X)
    value = f("sub", f("mul", row, lane), sc.masked(LATE, f("sub", row, INSIDE), f("mul", lane, lane)))
    given, out = Buffer("x", Layout.contiguous(tuple(map(Int, SHAPE)), F32, CPU)), _out(0, F32, *SHAPE)
    buffers = {buffer.name: buffer for buffer in (given, out)}
    graph = Graph((TensorInput(given),), (), (Pointwise(out, AXES, value),), (Ref.whole(out),), buffers)
    source = compile_loops(graph).artifact.libraries[0].source.rpartition('extern "C"')[2]
    assert source.count("fb::exp(") == source.count("fb::sin(") == 1
    assert source.index("fb::exp(") < source.index("[&](auto t") < source.index("fb::sin(")
