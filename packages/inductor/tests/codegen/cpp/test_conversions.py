"""Conversions between every two dtypes equal torch's, in kernels of 16 and of 8 lanes, in bodies and in tails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import Pointwise, make_axes
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

CPU = torch.device("cpu")
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int8, torch.uint8, torch.int16,
    torch.int32, torch.int64,
]  # fmt: skip
NUMBERS = [0, 1, 2, 3, 5, 7, 64, 100, 127, 13, 1, 0]


def _values(dtype: torch.dtype) -> torch.Tensor:
    """37 values that every dtype holds, and for float ones what rounds: ties, neighbours of ties, NaN, infinities."""
    values = torch.tensor((NUMBERS * 4)[:37]).to(dtype)
    if dtype.is_signed and not dtype.is_floating_point:
        values[::5] *= -1
    if dtype.is_floating_point:
        wide = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -(1 + 3 * 2**-8), 3e-5, 1e-39, float("nan")])
        values[3:10], values[30:37] = wide.to(dtype), wide.to(dtype)
        values[11], values[12] = float("inf"), float("-inf")
    return values


def _converted(values: torch.Tensor, targets: Sequence[torch.dtype], op: str = "to_dtype") -> tuple[torch.Tensor, ...]:
    """One graph with a conversion to each target."""
    size = (Int(values.numel()),)
    axes = make_axes(size)
    given = Buffer("given", Layout.contiguous(size, values.dtype, CPU))
    loaded = sc.load("given", axes[0].symbol, values.dtype)
    outs = [Buffer(f"out{n}", Layout.contiguous(size, target, CPU)) for n, target in enumerate(targets)]
    operations = tuple(Pointwise(out, axes, sc.op(op, loaded, dtype=out.layout.dtype)) for out in outs)
    buffers = {buffer.name: buffer for buffer in [given, *outs]}
    graph = Graph((TensorInput(given),), (), operations, tuple(Ref.whole(out) for out in outs), buffers)
    return load(compile_loops(graph).artifact)(values)


@pytest.mark.parametrize("widest", [4, 8], ids=["16 lanes", "8 lanes"])
@pytest.mark.parametrize("source", DTYPES, ids=lambda dtype: str(dtype).rpartition(".")[2])
def test_conversions(source: torch.dtype, widest: int) -> None:
    """Where the target cannot hold the value, C++ leaves the result open: those are left out."""
    values = _values(source)
    targets = [dtype for dtype in DTYPES if dtype.itemsize <= widest]
    for target, result in zip(targets, _converted(values, targets), strict=True):
        wide = values.double()
        keep = torch.full_like(wide, True, dtype=torch.bool)
        if not target.is_floating_point and target is not torch.bool:
            keep = wide.isfinite() & (wide >= torch.iinfo(target).min)
        torch.testing.assert_close(
            result[keep], values.to(target)[keep], rtol=0, atol=0, equal_nan=True, msg=lambda m, to=target: f"{to}: {m}"
        )


#: A dividend and a divisor of which C++ has no integer, nor a NaN.
OUTSIDE = [
    (0.0, 0.0),
    (1.0, 0.0),
    (-1.0, 0.0),
    (1e30, 1.0),
    (-1e30, 1.0),
    (3e9, 1.0),
    (-3e9, 1.0),
    (300.0, 1.0),
    (-300.0, 1.0),
    (-1.5, 1.0),
]


@pytest.mark.parametrize("count", [1, 37])
@pytest.mark.parametrize("source", [torch.float32, torch.float64], ids=str)
def test_numbers_without_an_integer(source: torch.dtype, count: int) -> None:
    """What they become is what the processor makes of them, also where the compiler knows the number."""
    targets = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    size = (Int(count),)
    axes = make_axes(size)
    given = Buffer("given", Layout.contiguous((Int(1),), source, CPU))
    pairs = [(known, target) for known in OUTSIDE for target in targets]
    outs = [Buffer(f"out{n}", Layout.contiguous(size, target, CPU)) for n, (_, target) in enumerate(pairs)]
    values = [sc.op("truediv", *(sc.constant(part, source) for part in known)) for known, _ in pairs]
    operations = tuple(
        Pointwise(out, axes, sc.op("to_dtype", value, dtype=out.layout.dtype))
        for out, value in zip(outs, values, strict=True)
    )
    buffers = {buffer.name: buffer for buffer in [given, *outs]}
    graph = Graph((TensorInput(given),), (), operations, tuple(Ref.whole(out) for out in outs), buffers)
    results = load(compile_loops(graph).artifact)(torch.zeros(1, dtype=source))
    for ((a, b), target), result in zip(pairs, results, strict=True):
        expected = (torch.tensor(a, dtype=source) / torch.tensor(b, dtype=source)).to(target)
        assert result.tolist() == [expected.item()] * count, (a / b if b else a, target)


@pytest.mark.parametrize(
    "pair", [(torch.int8, torch.uint8), (torch.float32, torch.int32), (torch.float64, torch.int64)], ids=str
)
def test_bits(pair: tuple[torch.dtype, torch.dtype]) -> None:
    """The same bits under another type, in both directions."""
    for source, target in (pair, pair[::-1]):
        values = _values(pair[0]).view(source)
        (result,) = _converted(values, [target], "bitcast")
        assert torch.equal(result.view(torch.uint8), values.view(torch.uint8))
