"""Every scalar op's Triton text equals its reference on awkward values."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import harness

from flambeau_inductor.codegen.triton.ops import op_names
from flambeau_inductor.ir import scalar
from flambeau_inductor.ir.kernel import Store
from flambeau_inductor.ir.loops import make_axes
from flambeau_inductor.ops.table import names, scalar_op

FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.0,
    -1.0,
    1.5,
    -1.5,
    2.5,
    3.0,
    -7.25,
    88.0,
    -90.0,
    1e-30,
    float("inf"),
    -float("inf"),
    float("nan"),
]
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -8, 63, 100]
SEPARATE = ("to_dtype", "bitcast", "check_bounds", "where", "fma", "philox_uniform")
EXACT_DIVISION = ("floordiv", "truncdiv", "remainder", "fmod")


def operands(dtype: torch.dtype, arity: int) -> list[torch.Tensor]:
    """All combinations of awkward values."""
    if dtype.is_floating_point:
        values = torch.tensor(FLOATS, dtype=dtype)
    elif dtype is torch.bool:
        values = torch.tensor([False, True])
    else:
        values = torch.tensor([v for v in INTEGERS if dtype.is_signed or v >= 0], dtype=dtype)
    if arity == 1:
        return [values]
    return [t.reshape(-1).contiguous() for t in torch.meshgrid(*[values] * arity, indexing="ij")]


def cases() -> list[tuple[str, torch.dtype]]:
    domains = {
        "float": [torch.float32, torch.float64],
        "integer": [torch.int32, torch.int64, torch.uint8],
        "number": [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8],
        "bool": [torch.bool],
        "any": [torch.float32, torch.int64],
    }
    return [(n, d) for n in names() if n not in SEPARATE for d in domains[scalar_op(n).domain]]


def run_op(name: str, inputs: list[torch.Tensor], dtype: torch.dtype | None = None) -> tuple[torch.Tensor, str]:
    axes = make_axes((inputs[0].numel(),))
    loads = [scalar.load(f"a{n}", axes[0].symbol, t.dtype) for n, t in enumerate(inputs)]
    value = scalar.op(name, *loads, dtype=dtype)
    out = torch.empty(inputs[0].numel(), dtype=value.dtype)
    tensors = {**{f"a{n}": t for n, t in enumerate(inputs)}, "out": out}
    source = harness.run(harness.make_body(tensors, axes, (), [Store("out", axes[0].symbol, value)]), tensors)
    return out, source


def test_every_op_has_a_text() -> None:
    """The table of texts and the table of ops name the same ops."""
    assert op_names() | {"check_bounds"} == set(names())


@pytest.mark.parametrize(("name", "dtype"), cases(), ids=lambda part: str(part).removeprefix("torch."))
def test_op_equals_its_reference(name: str, dtype: torch.dtype) -> None:
    """The text computes the op's definition, special values included."""
    record = scalar_op(name)
    inputs = operands(dtype, record.arity)
    if not dtype.is_floating_point and name in EXACT_DIVISION:
        inputs[1] = torch.where(inputs[1] == 0, torch.ones_like(inputs[1]), inputs[1])
    if name == "pow" and not dtype.is_floating_point:
        inputs[1] = inputs[1].abs()
    if name == "sign":
        inputs = [inputs[0][~inputs[0].isnan()]]
    out, source = run_op(name, inputs)
    expected = record.reference(*inputs, dtype=out.dtype)
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-12}.get(out.dtype, 0)
    torch.testing.assert_close(out, expected, rtol=tolerance, atol=0, equal_nan=True, msg=lambda m: f"{m}\n{source}")


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("target", DTYPES, ids=str)
def test_conversions_round_as_eager(source: torch.dtype, target: torch.dtype) -> None:
    """Tensor.to between every pair of dtypes."""
    values = (
        [0.0, 1.0, 0.1, 2.7, 100.0, 1.00390625, 1.01171875, 65504.0]
        if source.is_floating_point
        else [0, 1, 2, 100, 127]
    )
    if source.is_floating_point and (target.is_floating_point or target is torch.bool):
        values += [float("inf"), float("nan"), -3.3e38, 1e-40, -0.1]
    elif target is torch.uint8:
        values = [v for v in values if v < 256]
    given = torch.tensor(values).to(source)
    out, _ = run_op("to_dtype", [given], target)
    torch.testing.assert_close(out, given.to(target), rtol=0, atol=0, equal_nan=True)


def test_where_and_fma_and_bitcast() -> None:
    """The ops with operands of several dtypes."""
    a, b = torch.randn(37), torch.randn(37)
    assert torch.equal(run_op("where", [a > 0, a, b])[0], torch.where(a > 0, a, b))
    # Some of Triton's interpreters round twice; the compiler does not.
    torch.testing.assert_close(run_op("fma", [a, b, a])[0], scalar_op("fma").reference(a, b, a, dtype=torch.float32))
    assert torch.equal(run_op("bitcast", [a], torch.int32)[0], a.view(torch.int32))
