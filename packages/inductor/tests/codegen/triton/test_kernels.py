"""Kernel bodies of every shape, interpreted, against eager; every block size that changes the code is forced."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve

pytest.importorskip("triton")

import harness

from flambeau_inductor import expr as ex
from flambeau_inductor.codegen.triton import Config, UnsupportedKernel, generate, kernel_text, unsupported
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import KernelBody, Reduce, ScanStep, Store
from flambeau_inductor.ir.loops import make_axes

F32, I64, BOOL = torch.float32, torch.int64, torch.bool
#: One block a row; a loop over the row.
PERSISTENT = Config({"x": 2, "r": 64}, 4, persistent=True)
LOOPED = Config({"x": 2, "r": 16}, 4)
both = pytest.mark.parametrize("config", [PERSISTENT, LOOPED], ids=["persistent", "looped"])


def f(name: str, *args: sc.Scalar, **kwargs: torch.dtype) -> sc.Scalar:
    return sc.op(name, *args, **kwargs)


def rows(n: int = 5, m: int = 50) -> tuple[tuple, tuple, ex.Expr]:
    """Axes over n rows of m, and the flat index."""
    outer, inner = make_axes((ex.Int(n),)), make_axes((ex.Int(m),), "r")
    return outer, inner, outer[0].symbol * m + inner[0].symbol


def test_pointwise_over_three_axes_and_a_broadcast() -> None:
    """A strided input and a broadcast one; the store is contiguous."""
    a, b = torch.randn(3, 7, 5).transpose(0, 2), torch.randn(7, 1)
    out = torch.empty(5, 7, 3)
    axes = make_axes(tuple(map(ex.Int, out.shape)))
    i, j, k = (axis.symbol for axis in axes)
    value = f("add", sc.load("a", i * 1 + j * 5 + k * 35, F32), sc.load("b", j, F32))
    tensors = {"a": a, "b": b, "out": out}
    harness.run(harness.make_body(tensors, axes, (), [Store("out", i * 21 + j * 3 + k, value)]), tensors)
    assert torch.equal(out, a + b)


def test_transpose_uses_two_tiles() -> None:
    """Reads contiguous along one axis, writes along another: a two-dimensional tile."""
    a, out = torch.randn(37, 50), torch.empty(50, 37)
    axes = make_axes((ex.Int(50), ex.Int(37)))
    i, j = (axis.symbol for axis in axes)
    body = harness.make_body({"a": a, "out": out}, axes, (), [Store("out", i * 37 + j, sc.load("a", j * 50 + i, F32))])
    source = harness.run(body, {"a": a, "out": out})
    assert "YBLOCK" in source and torch.equal(out, a.t())


@pytest.mark.parametrize("size", [17, 32, 33, 40])
def test_blocks_that_lie_in_one_segment(size: int) -> None:
    """What an index divides is one number for a whole block, also for the last, of which a segment may have a single point."""
    a, b, out = torch.randn(3), torch.randn(2), torch.empty(size)
    axes = make_axes((ex.Int(size),))
    i = axes[0].symbol
    value = f("sub", sc.load("a", i // 16, F32), sc.load("b", i // 16 % 2, F32))
    tensors = {"a": a, "b": b, "out": out}
    body = harness.make_body(tensors, axes, (), [Store("out", i, value)])
    source = harness.run(body, tensors, config=Config({"x": 8}, 1))
    number = torch.arange(size) // 16
    assert "xn = " in source
    assert torch.equal(out, a[number] - b[number % 2])


@pytest.mark.parametrize("size", [32, 61, 64, 16, 20])
def test_a_square_and_its_transpose(size: int) -> None:
    """Programs take a tile and its mirror image; every tile is written, the diagonal too."""
    a, out = torch.randn(size, size), torch.full((size, size), float("nan"))
    axes = make_axes((ex.Int(size), ex.Int(size)))
    i, j = (axis.symbol for axis in axes)
    value = f("sub", sc.load("a", i * size + j, F32), sc.load("a", j * size + i, F32))
    body = harness.make_body({"a": a, "out": out}, axes, (), [Store("out", i * size + j, value)])
    source = harness.run(body, {"a": a, "out": out}, config=Config({"y": 16, "x": 16}, 4))
    assert ("xtile = " in source) == (-(-size // 16) % 2 == 0)
    assert torch.equal(out, a - a.t())


def test_symbolic_size() -> None:
    """A size that is an argument: 64-bit indices, the same source for every value."""
    n = ex.Symbol("s0", 2, hint=100)
    axes = make_axes((n, ex.Int(3)))
    i, j = (axis.symbol for axis in axes)
    sources = set()
    for size in (7, 200):
        a, out = torch.randn(size, 3), torch.empty(3, size)
        body = harness.make_body({}, axes, (), [Store("out", j * n + i, sc.load("a", i * 3 + j, F32))], [n])
        body = KernelBody(
            "test",
            body.outer,
            (),
            body.statements,
            tuple(harness.buffer(k, t) for k, t in (("a", a), ("out", out))),
            (n,),
            harness.CPU,
        )
        sources.add(harness.run(body, {"a": a, "out": out}, {n: size}))
        assert torch.equal(out, a.t())
    assert len(sources) == 1


def test_scalar_parameter() -> None:
    """A float graph input reaches the kernel as an argument."""
    a, out = torch.randn(9), torch.empty(9)
    axes = make_axes((ex.Int(9),))
    value = f("mul", sc.load("a", axes[0].symbol, F32), sc.parameter("scale", F32))
    body = harness.make_body({"a": a, "out": out}, axes, (), [Store("out", axes[0].symbol, value)], ["scale"])
    harness.run(body, {"a": a, "out": out}, {"scale": 0.3})
    assert torch.equal(out, a * 0.3)


def test_bfloat16_rounds_once_per_eager_op() -> None:
    """Widen, compute, round: as eager does for each op."""
    a, b = torch.randn(100).bfloat16(), torch.randn(100).bfloat16()
    out = torch.empty(100, dtype=torch.bfloat16)
    axes = make_axes((ex.Int(100),))
    x = axes[0].symbol
    wide = [f("to_dtype", sc.load(n, x, torch.bfloat16), dtype=F32) for n in "ab"]
    product = f("to_dtype", f("mul", *wide), dtype=torch.bfloat16)
    value = f("add", f("to_dtype", product, dtype=F32), wide[0])
    tensors = {"a": a, "b": b, "out": out}
    harness.run(harness.make_body(tensors, axes, (), [Store("out", x, value)]), tensors)
    assert torch.equal(out, a * b + a)


def test_masked_body_does_not_read_outside() -> None:
    """Constant padding: the load happens only where the condition holds."""
    a, out = torch.randn(6), torch.empty(10)
    axes = make_axes((ex.Int(10),))
    x = axes[0].symbol
    at = sc.index_value(x)
    inside = f("logical_and", f("ge", at, sc.constant(2, I64)), f("lt", at, sc.constant(8, I64)))
    value = sc.masked(inside, f("exp", sc.load("a", x - 2, F32)), sc.constant(-1.0, F32))
    tensors = {"a": a, "out": out}
    harness.run(harness.make_body(tensors, axes, (), [Store("out", x, value)]), tensors)
    torch.testing.assert_close(out, torch.nn.functional.pad(a.exp(), (2, 2), value=-1.0))


def embedding(check: bool = True) -> tuple[KernelBody, dict[str, torch.Tensor]]:
    weight, index, out = torch.randn(11, 4), torch.tensor([3, 0, -1, 10, 3]), torch.empty(5, 4)
    axes = make_axes((ex.Int(5), ex.Int(4)))
    i, j = (axis.symbol for axis in axes)
    row = sc.indirect(sc.load("index", i, I64), ex.Int(11), check=check)
    tensors = {"weight": weight, "index": index, "out": out}
    return harness.make_body(tensors, axes, (), [Store("out", i * 4 + j, sc.load("weight", row * 4 + j, F32))]), tensors


def test_indirect_load_wraps_around() -> None:
    """A gather with negative indices."""
    body, tensors = embedding()
    harness.run(body, tensors)
    assert torch.equal(tensors["out"], tensors["weight"][tensors["index"]])


def test_index_out_of_range_raises() -> None:
    """A bounds check that fails is an IndexError."""
    body, tensors = embedding()
    tensors["index"][2] = 11
    with pytest.raises(IndexError, match="out of range"):
        harness.run(body, tensors)


def test_scatter_adds_atomically() -> None:
    """Several points add to one element."""
    index, source, out = torch.tensor([1, 0, 1, 2, 1, 0]), torch.randn(6), torch.zeros(3)
    axes = make_axes((ex.Int(6),))
    x = axes[0].symbol
    at = sc.indirect(sc.load("index", x, I64), ex.Int(3))
    value = sc.load("source", x, F32)
    tensors = {"index": index, "source": source, "out": out}
    harness.run(harness.make_body(tensors, axes, (), [Store("out", at, value, mode="add")]), tensors)
    torch.testing.assert_close(out, torch.zeros(3).index_add(0, index, source))


@pytest.mark.parametrize(("mode", "reduce"), [("mul", "prod"), ("min", "amin"), ("max", "amax")])
@pytest.mark.parametrize("dtype", [F32, torch.bfloat16, torch.int8])
def test_scatter_without_an_atomic_takes_turns(mode: str, reduce: str, dtype: torch.dtype) -> None:
    """Products, NaN-keeping extremes and narrow integers: one program, point by point."""
    index = torch.tensor([1, 0, 1, 2, 1, 0])
    source, out = (torch.randn(6) * 3).to(dtype), torch.ones(3, dtype=dtype)
    if dtype.is_floating_point:
        source[3] = float("nan")
    expected = out.clone().scatter_reduce(0, index, source, reduce)
    axes = make_axes((ex.Int(6),))
    x = axes[0].symbol
    at = sc.indirect(sc.load("index", x, I64), ex.Int(3))
    tensors = {"index": index, "source": source, "out": out}
    harness.run(
        harness.make_body(tensors, axes, (), [Store("out", at, sc.load("source", x, dtype), mode=mode)]), tensors
    )
    torch.testing.assert_close(out, expected, equal_nan=True)


def test_two_outputs_side_by_side() -> None:
    """A horizontally fused body stores twice and loads once."""
    a = torch.randn(130)
    tensors = {"a": a, "p": torch.empty(130), "q": torch.empty(130, dtype=BOOL)}
    axes = make_axes((ex.Int(130),))
    x = axes[0].symbol
    value = sc.load("a", x, F32)
    stores = [Store("p", x, f("relu", value)), Store("q", x, f("gt", value, sc.constant(0.0, F32)))]
    source = harness.run(harness.make_body(tensors, axes, (), stores), tensors)
    assert source.count("tl.load") == 1
    assert torch.equal(tensors["p"], a.relu()) and torch.equal(tensors["q"], a > 0)


def test_in_place_shares_one_argument() -> None:
    """A buffer over another's memory is the same parameter."""
    a = torch.randn(40)
    expected = a + 1
    axes = make_axes((ex.Int(40),))
    x = axes[0].symbol
    store = Store("b", x, f("add", sc.load("a", x, F32), sc.constant(1.0, F32)))
    body = harness.make_body({"a": a, "b": a}, axes, (), [store], aliases={"b": "a"})
    assert kernel_text(body).buffers == ("a",)
    harness.run(body, {"a": a})
    assert torch.equal(a, expected)


REDUCTIONS = {
    "sum": (F32, lambda t: t.sum(1)), "prod": (F32, lambda t: t.prod(1)), "max": (F32, lambda t: t.amax(1)),
    "min": (F32, lambda t: t.amin(1)), "argmax": (F32, lambda t: t.argmax(1)), "argmin": (F32, lambda t: t.argmin(1)),
    "any": (BOOL, lambda t: t.any(1)), "all": (BOOL, lambda t: t.all(1)),
}  # fmt: skip


@both
@pytest.mark.parametrize("kind", [*REDUCTIONS])
@pytest.mark.parametrize("special", ["plain", "nan", "ties"])
def test_reduction_equals_eager(kind: str, special: str, config: Config) -> None:
    """Every kind over rows that do not fill their block; NaN and ties."""
    dtype, eager = REDUCTIONS[kind]
    a = torch.randn(5, 50) if dtype is F32 else torch.rand(5, 50) > 0.03
    if special == "nan" and dtype is F32:
        a[1, 7] = a[1, 30] = a[3, 49] = float("nan")
    elif special == "ties":
        a = a.round() if dtype is F32 else torch.ones(5, 50, dtype=BOOL)
    outer, inner, at = rows()
    expected = eager(a)
    out = torch.empty_like(expected)
    result = sc.reduced("acc", out.dtype)
    statements = [Reduce("acc", kind, sc.load("a", at, dtype), out.dtype), Store("out", outer[0].symbol, result)]
    tensors = {"a": a, "out": out}
    harness.run(harness.make_body(tensors, outer, inner, statements), tensors, config=config)
    torch.testing.assert_close(out, expected, equal_nan=True)


@both
def test_integer_reductions(config: Config) -> None:
    """sum, xor and max of integers."""
    a = torch.randint(-1000, 1000, (5, 50))
    outer, inner, at = rows()
    x = outer[0].symbol
    kinds = ("sum", "xor_sum", "max", "argmin")
    statements = [Reduce(k, k, sc.load("a", at, I64), I64) for k in kinds]
    statements += [Store(f"out_{k}", x, sc.reduced(k, I64)) for k in kinds]
    tensors = {"a": a, **{f"out_{k}": torch.empty(5, dtype=I64) for k in kinds}}
    harness.run(harness.make_body(tensors, outer, inner, statements), tensors, config=config)
    xor = a[:, 0].clone()
    for column in range(1, 50):
        xor ^= a[:, column]
    for k, expected in zip(kinds, (a.sum(1), xor, a.amax(1), a.argmin(1))):
        assert torch.equal(tensors[f"out_{k}"], expected), k


def softmax_body(tensors: dict[str, torch.Tensor], aliases: dict[str, str] | None = None) -> KernelBody:
    outer, inner, at = rows()
    value = sc.load("a", at, F32)
    shifted = f("exp", f("sub", value, sc.reduced("m", F32)))
    statements = [
        Reduce("m", "max", value, F32),
        Reduce("s", "sum", shifted, F32),
        Store("out", at, f("truediv", shifted, sc.reduced("s", F32)), level="inner"),
    ]
    return harness.make_body(tensors, outer, inner, statements, aliases=aliases)


@both
def test_softmax_in_one_kernel(config: Config) -> None:
    """Two passes over the row, or one when it stays in registers."""
    a = torch.randn(5, 50)
    tensors = {"a": a, "out": torch.empty(5, 50)}
    source = harness.run(softmax_body(tensors), tensors, config=config)
    assert source.count("tl.load") == (1 if config.persistent else 2)
    torch.testing.assert_close(tensors["out"], a.softmax(1))


@both
def test_softmax_over_its_own_input(config: Config) -> None:
    """In place: no pass reads what the last one wrote."""
    a = torch.randn(5, 50)
    expected = a.softmax(1)
    harness.run(softmax_body({"a": a, "out": a}, {"out": "a"}), {"a": a}, config=config)
    torch.testing.assert_close(a, expected)


@both
def test_old_contents_are_read_before_they_are_overwritten(config: Config) -> None:
    """A store over a dying buffer waits for the reductions that still read it."""
    a = torch.randn(5, 50)
    before = a.clone()
    outer, inner, at = rows()
    old = sc.load("a", at, F32)
    statements = [
        Store("b", at, f("mul", old, sc.constant(3.0, F32)), level="inner"),
        Reduce("m", "max", old, F32),
        Reduce("s", "sum", f("exp", f("sub", old, sc.reduced("m", F32))), F32),
        Store("out", outer[0].symbol, sc.reduced("s", F32)),
    ]
    tensors = {"a": a, "b": a, "out": torch.empty(5)}
    body = harness.make_body(tensors, outer, inner, statements, aliases={"b": "a"})
    harness.run(body, {"a": a, "out": tensors["out"]}, config=config)
    torch.testing.assert_close(a, before * 3)
    torch.testing.assert_close(tensors["out"], (before - before.amax(1, keepdim=True)).exp().sum(1))


@both
def test_layer_norm_with_statistics_kept(config: Config) -> None:
    """Mean, squared distance, then the row; a weight per column and two outer stores."""
    a, w = torch.randn(5, 50), torch.randn(50)
    outer, inner, at = rows()
    x, r = outer[0].symbol, inner[0].symbol
    n = sc.constant(50.0, F32)
    mean = f("truediv", sc.reduced("s", F32), n)
    centred = f("sub", sc.load("a", at, F32), mean)
    variance = f("truediv", sc.reduced("v", F32), n)
    inverse = f("rsqrt", f("add", variance, sc.constant(1e-5, F32)))
    statements = [
        Reduce("s", "sum", sc.load("a", at, F32), F32),
        Store("mean", x, mean),
        Reduce("v", "sum", f("mul", centred, centred), F32),
        Store("inverse", x, inverse),
        Store("out", at, f("mul", f("mul", centred, inverse), sc.load("w", r, F32)), level="inner"),
    ]
    tensors = {"a": a, "w": w, "mean": torch.empty(5), "inverse": torch.empty(5), "out": torch.empty(5, 50)}
    harness.run(harness.make_body(tensors, outer, inner, statements), tensors, config=config)
    out, m, rstd = torch.native_layer_norm(a, [50], w, None, 1e-5)
    torch.testing.assert_close(tensors["out"], out)
    torch.testing.assert_close(tensors["mean"], m[:, 0])
    torch.testing.assert_close(tensors["inverse"], rstd[:, 0])


@both
@pytest.mark.parametrize("kind", ["sum", "prod", "max", "logaddexp"])
def test_scan_equals_eager(kind: str, config: Config) -> None:
    """Running values, carried from block to block; a NaN stays."""
    a = torch.rand(5, 50) + 0.5
    a[2, 20] = float("nan")
    eager = {
        "sum": torch.cumsum,
        "prod": torch.cumprod,
        "max": lambda t, d: torch.cummax(t, d).values,
        "logaddexp": torch.logcumsumexp,
    }
    outer, inner, at = rows()
    statements = [
        ScanStep("run", kind, sc.load("a", at, F32), F32),
        Store("out", at, sc.reduced("run", F32), level="inner"),
    ]
    tensors = {"a": a, "out": torch.empty(5, 50)}
    harness.run(harness.make_body(tensors, outer, inner, statements), tensors, config=config)
    torch.testing.assert_close(tensors["out"], eager[kind](a, 1), equal_nan=True)


def test_column_sums_walk_down_columns() -> None:
    """A reduction over the slow axis keeps neighbouring columns in neighbouring lanes."""
    a, out = torch.randn(70, 37), torch.empty(37)
    outer, inner = make_axes((ex.Int(37),)), make_axes((ex.Int(70),), "r")
    at = inner[0].symbol * 37 + outer[0].symbol
    statements = [Reduce("s", "sum", sc.load("a", at, F32), F32), Store("out", outer[0].symbol, sc.reduced("s", F32))]
    body = harness.make_body({"a": a, "out": out}, outer, inner, statements)
    assert kernel_text(body).config.blocks["x"] >= 16
    harness.run(body, {"a": a, "out": out})
    torch.testing.assert_close(out, a.sum(0))


def test_full_reduction_to_one_element() -> None:
    """No outer axis: one program, one element."""
    a, out = torch.randn(6, 50), torch.empty(())
    inner = make_axes((ex.Int(6), ex.Int(50)), "r")
    at = inner[0].symbol * 50 + inner[1].symbol
    statements = [Reduce("s", "sum", sc.load("a", at, F32), F32), Store("out", ex.ZERO, sc.reduced("s", F32))]
    harness.run(harness.make_body({"a": a, "out": out}, (), inner, statements), {"a": a, "out": out})
    torch.testing.assert_close(out, a.sum())


def test_empty_reduction_gives_the_identity() -> None:
    """A sum over nothing is zero."""
    a, out = torch.empty(3, 0), torch.full((3,), 7.0)
    outer, inner = make_axes((ex.Int(3),)), make_axes((ex.Int(0),), "r")
    statements = [
        Reduce("s", "sum", sc.load("a", outer[0].symbol, F32), F32),
        Store("out", outer[0].symbol, sc.reduced("s", F32)),
    ]
    harness.run(harness.make_body({"a": a, "out": out}, outer, inner, statements), {"a": a, "out": out})
    assert torch.equal(out, torch.zeros(3))


def test_reading_back_elsewhere_is_refused() -> None:
    """A kernel cannot read another thread's store."""
    axes = make_axes((ex.Int(8),))
    x = axes[0].symbol
    tensors = {"a": torch.randn(8), "b": torch.empty(8), "c": torch.empty(8)}
    stores = [Store("b", x, sc.load("a", x, F32)), Store("c", x, sc.load("b", 7 - x, F32))]
    body = harness.make_body(tensors, axes, (), stores)
    assert "another place" in (unsupported(body) or "")
    with pytest.raises(UnsupportedKernel):
        kernel_text(body)


def test_every_refused_kernel_of_a_program_is_told() -> None:
    """By the nodes it is made of, which become library calls; what can be a kernel is not among them."""
    axes = make_axes((ex.Int(8),))
    x = axes[0].symbol
    tensors = {"a": torch.randn(8), "b": torch.empty(8), "c": torch.empty(8)}
    written = Store("b", x, sc.load("a", x, F32))
    fine, refused = (
        harness.make_body(tensors, axes, (), [written, Store("c", x, sc.load("b", place, F32))]) for place in (x, 7 - x)
    )
    bodies = [
        evolve(refused, origins=("flip",)),
        evolve(fine, origins=("add",)),
        evolve(refused, origins=("mul", "rev")),
    ]
    with pytest.raises(UnsupportedKernel, match="another place") as caught:
        generate(bodies)
    assert caught.value.origins == ("flip", "mul", "rev")
    assert len(generate(bodies[1:2])) == 1


def test_generation_is_deterministic() -> None:
    """The same body gives the same text."""
    tensors = {"a": torch.randn(5, 50), "out": torch.empty(5, 50)}
    assert kernel_text(softmax_body(tensors)).source == kernel_text(softmax_body(tensors)).source
