"""Every scalar op as C++ gives what the op's reference gives, special values included, in vector bodies and in tails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from flambeau_inductor import Config
from flambeau_inductor.codegen.cpp.ops import SPECIAL
from flambeau_inductor.codegen.cpp.spell import EXACT
from flambeau_inductor.context import CompileContext
from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.graph import Graph, TensorInput
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.ir.loops import Pointwise, make_axes
from flambeau_inductor.ops.table import names, scalar_op
from flambeau_inductor.pipeline import compile_loops
from flambeau_runtime import load

CPU = torch.device("cpu")
SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -3.0, 10.5, -7.25, -2.75, 87.0, -87.0, 1e-3, -1e-3, 1e4, -1e4]
EXTREMES = [float("inf"), float("-inf"), float("nan"), 3e38, -3e38]
INTEGERS = [0, 1, -1, 2, 3, -4, 7, 64, 100, 127, -128]
DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
#: Results of these depend on the library's last bits far from the origin.
LOOSE = {"digamma", "lgamma", "erfinv", "tan", "sin", "cos", "pow", "erf", "erfc", "log2", "log10"}


def _operands(dtype: torch.dtype, arity: int) -> list[torch.Tensor]:
    if dtype is torch.bool:
        values = torch.tensor([True, False, True, True, False])
    elif dtype.is_floating_point:
        values = torch.tensor(SPECIALS + EXTREMES, dtype=dtype)
    else:
        values = torch.tensor(INTEGERS).to(dtype)
    if arity == 1:
        return [values.repeat(3)]
    if arity == 2:
        return [t.contiguous() for t in (values.repeat_interleave(len(values)), values.repeat(len(values)))]
    return [values.repeat(3), values.flip(0).repeat(3), values.roll(1).repeat(3)]


def _takes(name: str, dtype: torch.dtype) -> bool:
    domain = scalar_op(name).domain
    if domain == "any":
        return True
    if dtype is torch.bool:
        return domain == "bool"
    if dtype.is_floating_point:
        return domain in ("float", "number")
    return domain in ("integer", "number")


def _program(
    ops: list[str], operands: list[torch.Tensor], config: Config | None = None
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Each op of as many of the operands as it takes, for operands like these."""
    size = (Int(operands[0].numel()),)
    inputs = [Buffer(f"in{n}", Layout.contiguous(size, t.dtype, CPU)) for n, t in enumerate(operands)]
    axes = make_axes(size)
    at = axes[0].symbol
    loads = [sc.load(b.name, at, b.layout.dtype) for b in inputs]
    operations, outputs, buffers = [], [], {b.name: b for b in inputs}
    for n, name in enumerate(ops):
        value = sc.op(name, *loads[: scalar_op(name).arity])
        out = Buffer(f"out{n}", Layout.contiguous(size, value.dtype, CPU))
        buffers[out.name] = out
        operations.append(Pointwise(out, axes, value))
        outputs.append(Ref.whole(out))
    graph = Graph(tuple(TensorInput(b) for b in inputs), (), tuple(operations), tuple(outputs), buffers)
    built = compile_loops(graph, CompileContext(config or Config()))
    return load(built.artifact, constants=built.constants)


@pytest.mark.parametrize("arity", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_ops_match_their_reference(dtype: torch.dtype, arity: int) -> None:
    """Values, NaN, infinities and dtypes agree."""
    ops = [n for n in names() if n not in SPECIAL and scalar_op(n).arity == arity and _takes(n, dtype) and n != "where"]
    operands = _operands(dtype, arity)
    if not ops:
        pytest.skip("no such op")
    divisions = {"floordiv", "truncdiv", "remainder", "fmod", "pow"}
    if not dtype.is_floating_point and dtype is not torch.bool and arity == 2:
        # Division by zero is refused by eager; the lowest value over minus one overflows there.
        safe = (
            (operands[1] != 0) & ~((operands[1] == -1) & (operands[0] == torch.iinfo(dtype).min)) & (operands[1] >= -3)
        )
        safe &= operands[1] < 8
        operands = [t[safe].contiguous() for t in operands]
    results = _program(ops, operands)(*operands)
    for name, result in zip(ops, results, strict=True):
        try:
            wanted = scalar_op(name).reference(*operands, dtype=dtype)
        except (RuntimeError, NotImplementedError):
            continue
        assert result.dtype is wanted.dtype or name in divisions, name
        if name in divisions and dtype.is_floating_point:
            # Eager's own vector remainder gives up on quotients this large.
            keep = ~(operands[0].abs() > 1e30) | operands[0].isinf()
            result, wanted = result[keep], wanted[keep]
        tolerance = 2e-5 if name in LOOSE else 3e-6
        torch.testing.assert_close(
            result,
            wanted.to(result.dtype),
            rtol=tolerance,
            atol=1e-7,
            equal_nan=True,
            msg=lambda m, n=name: f"{n} on {dtype}: {m}",
        )


def test_a_lane_has_the_bits_of_a_single_value() -> None:
    """Under ``batch_invariant``, where all but these ops are computed one by one."""
    assert EXACT <= set(names())
    ops = sorted(EXACT - {"where"})
    torch.manual_seed(0)
    values = torch.cat([_operands(torch.float32, 1)[0][:23], torch.randn(9), 1e5 * torch.randn(9)])
    operands = [values, values.roll(5), values.roll(11)]
    config = Config(batch_invariant=True)
    whole = _program(ops, operands, config)(*operands)
    single = _program(ops, [part[:1] for part in operands], config)
    alone = [single(*(part[n : n + 1].clone() for part in operands)) for n in range(len(values))]
    for name, ours, others in zip(ops, whole, map(torch.cat, zip(*alone, strict=True)), strict=True):
        same = (ours == others) & (ours.signbit() == others.signbit()) | (ours != ours) & (others != others)
        assert same.all(), name


@pytest.mark.parametrize("dtype", [t for t in DTYPES if not t.is_floating_point and t is not torch.bool], ids=str)
def test_divisions_never_trap(dtype: torch.dtype) -> None:
    """The lowest number over -1 wraps, and a zero divisor is told, in vectors and in what is left of them."""
    lowest = torch.full((37,), torch.iinfo(dtype).min, dtype=dtype)
    quotients, remainders = ["floordiv", "truncdiv"], ["remainder", "fmod"]
    if dtype.is_signed:
        operands = [lowest, torch.full_like(lowest, -1)]
        for result in _program(quotients, operands)(*operands):
            assert torch.equal(result, lowest)
        for result in _program(remainders, operands)(*operands):
            assert not result.any()
    for at in (0, 36):
        divisors = torch.ones_like(lowest)
        divisors[at] = 0
        with pytest.raises(IndexError, match="integer division or modulo by zero"):
            _program(quotients + remainders, [lowest, divisors])(lowest, divisors)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_to_nearest_even(half: torch.dtype) -> None:
    """Every bit pattern of a half type survives a round trip, and float32 values round as eager rounds them."""
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(half)
    floats = torch.cat([torch.randn(4001) * 100, torch.tensor(EXTREMES), torch.randn(999) * 1e-6])

    def graph(values: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        size = (Int(values.numel()),)
        source = Buffer("x", Layout.contiguous(size, values.dtype, CPU))
        out = Buffer("y", Layout.contiguous(size, to, CPU))
        axes = make_axes(size)
        value = sc.op("to_dtype", sc.load("x", axes[0].symbol, values.dtype), dtype=to)
        g = Graph(
            (TensorInput(source),), (), (Pointwise(out, axes, value),), (Ref.whole(out),), {"x": source, "y": out}
        )
        return load(compile_loops(g).artifact)(values)[0]

    torch.testing.assert_close(graph(patterns, torch.float32), patterns.float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(graph(floats, half), floats.to(half), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_product_is_rounded_before_it_is_added(dtype: torch.dtype) -> None:
    """Two operations of eager are two roundings, to the last bit."""
    size = (Int(1003),)
    axes = make_axes(size)
    inputs = [Buffer(name, Layout.contiguous(size, dtype, CPU)) for name in "xyz"]
    x, y, z = (sc.load(buffer.name, axes[0].symbol, dtype) for buffer in inputs)
    out = Buffer("out", Layout.contiguous(size, dtype, CPU))
    operation = Pointwise(out, axes, sc.op("add", sc.op("mul", x, y), z))
    buffers = {buffer.name: buffer for buffer in (*inputs, out)}
    graph = Graph(tuple(map(TensorInput, inputs)), (), (operation,), (Ref.whole(out),), buffers)
    given = [torch.randn(1003, dtype=dtype) for _ in inputs]
    assert torch.equal(load(compile_loops(graph).artifact)(*given)[0], given[0] * given[1] + given[2])


def test_the_error_function_ends_at_one() -> None:
    """GELU multiplies what is missing by its argument, however large: far out it is zero."""
    x = torch.cat([torch.linspace(3.92, 9, 500), torch.tensor([1e4, 1e30, 3e38])])
    values = torch.cat([x, -x])
    (found,) = _program(["erf"], [values])(values)
    assert torch.equal(found, torch.cat([torch.ones_like(x), -torch.ones_like(x)]))
