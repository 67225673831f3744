"""Random programs: the native executor and its Python twin give the same results or the same error."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau_runtime import Store, load
from flambeau_runtime import artifact as a

REGISTERS = 6
SHAPES = [(4,), (2, 2), (1, 4), (4, 1), (2, 1, 2)]
UNARY = ["neg", "exp", "abs", "relu", "sigmoid", "cos"]
BINARY = [("add", "Tensor"), ("mul", "Tensor"), ("maximum", ""), ("sub", "Tensor")]
SCALAR_OPS = ["add", "sub", "mul", "floordiv", "mod", "min", "max", "eq", "lt", "and", "or"]

tensor = st.integers(0, REGISTERS - 1)
scalar = st.integers(0, REGISTERS - 1)
operand = st.one_of(st.integers(-5, 5), st.builds(a.Scalar, scalar), st.sampled_from([0.5, -1.5, True]))


def contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.insert(0, step)
        step *= size
    return tuple(strides)


def view(out: int, source: int, sizes: tuple[int, ...]) -> a.View:
    return a.View(out, source, sizes, contiguous(sizes), 0)


instruction = st.one_of(
    st.builds(lambda o, i, n: a.Call(f"aten::{n}", "", (a.Reg(i),), {}, (o,)), tensor, tensor, st.sampled_from(UNARY)),
    st.builds(lambda o, i, j, n: a.Call(f"aten::{n[0]}", n[1], (a.Reg(i), a.Reg(j)), {}, (o,)),
              tensor, tensor, tensor, st.sampled_from(BINARY)),
    st.builds(lambda o, i, s: a.Call("aten::mul", "Tensor", (a.Reg(i), s), {}, (o,)), tensor, tensor, operand),
    st.builds(view, tensor, tensor, st.sampled_from(SHAPES)),
    st.builds(a.Copy, tensor, tensor),
    st.builds(lambda i, n: a.Hold(i, n, contiguous(n)[::-1], torch.float64), tensor, st.sampled_from(SHAPES)),
    st.builds(lambda o, n, x, y: a.Compute(o, n, (x, y)), scalar, st.sampled_from(SCALAR_OPS), operand, operand),
    st.builds(lambda o, i, d: a.Size(o, i, d, "stride" if d < 0 else "size"), scalar, tensor, st.integers(-1, 0)),
    st.builds(lambda o, i: a.Call("aten::sum", "", (a.Reg(i),), {}, (o,)), tensor, tensor),
    st.builds(a.Item, scalar, tensor),
)  # fmt: skip


def outcome(run: Any, inputs: list[Any]) -> Any:
    try:
        return run(*inputs)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError, OverflowError) as error:
        return type(error), error.__notes__


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(st.lists(instruction, min_size=1, max_size=12), st.integers(0, 10_000))
def test_both_executors_agree(instructions: list[Any], seed: int) -> None:
    inputs = [a.InputSpec("tensor", i, torch.float64, "cpu", (4,), (1,), mutated=True) for i in range(REGISTERS)]
    numbers = [a.InputSpec("scalar", i) for i in range(REGISTERS)]
    outputs = [a.OutputSpec("tensor", i) for i in range(REGISTERS)]
    outputs += [a.OutputSpec("scalar", a.Scalar(i)) for i in range(REGISTERS)]
    made = a.Artifact(a.Program(instructions, REGISTERS, REGISTERS, inputs + numbers, outputs))
    made = a.Artifact.from_bytes(made.to_bytes())
    store = Store(None)
    results = []
    for executor in ("native", "python"):
        values = list(torch.randn(REGISTERS, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))
        values = [value.clone() for value in values]
        got = outcome(load(made, executor=executor, store=store), [*values, 1, 2, 3, 2.5, True, -4])
        results.append((got, values))
    (native, native_inputs), (python, python_inputs) = results
    assert len(native) == len(python)
    for left, right in zip([*native, *native_inputs], [*python, *python_inputs]):
        if isinstance(left, torch.Tensor):
            assert left.dtype == right.dtype and left.stride() == right.stride()
            assert torch.equal(left.nan_to_num(), right.nan_to_num())
        else:
            assert type(left) is type(right) and repr(left) == repr(right)
