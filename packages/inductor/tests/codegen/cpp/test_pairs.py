"""Two registers a value: kernels that read and write nothing but bfloat16 along their lanes answer what eager does, and others do without."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tracing import traced

import flambeau_runtime
from flambeau_inductor import compile_graph
from flambeau_inductor.codegen.cpp.short_nans import ShortNans
from flambeau_inductor.kernel_ir import (
    NO_TILES,
    Accumulator,
    Assign,
    Begin,
    Combine,
    Load,
    LocalArray,
    Number,
    Op,
    Pointer,
    RunInPlace,
    Store,
    Update,
    Variable,
    constant,
)

_BF16 = torch.bfloat16


def compiled(function, inputs):
    """The text of its kernels and what it answers."""
    artifact = compile_graph(traced(function, *inputs), inputs, {"verify": True})
    run = flambeau_runtime.load(flambeau_runtime.build_libraries(artifact))
    return artifact.libraries[0].source.partition('extern "C"')[2], run(*inputs)


def every_bfloat16():
    """All bit patterns: numbers, denormal ones, infinities and NaNs."""
    return torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(_BF16)


@pytest.fixture(params=["native", "haswell"])
def machine(request, monkeypatch):
    """With the registers of this machine, and with those of AVX2."""
    info = Path("/proc/cpuinfo")
    features = info.read_text().split() if info.exists() else []
    if request.param == "haswell" and not {"avx2", "fma", "f16c"} <= set(features):
        pytest.skip("this machine cannot run AVX2")
    monkeypatch.setenv("FLAMBEAU_CXXFLAGS", f"-march={request.param}")
    return request.param


def test_each_operation_is_rounded_as_in_eager(machine):
    """Of every bfloat16, in steps that are exact before they are rounded; the last registers of a row are not full."""
    x = every_bfloat16()[:-13].clone()
    y = x.flip(0).contiguous()

    def function(x, y):
        return -(x * y) + x, torch.where(x > y, (x + y).relu(), y * 0.5), torch.maximum(x, y).abs() - 1.5

    source, found = compiled(function, (x, y))
    assert "load_two" in source and "round_bf16(" not in source
    for ours, theirs in zip(found, function(x, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def test_functions(machine):
    """Of every bfloat16: within two units of the result, NaN where eager's is."""
    x = every_bfloat16()

    def function(x):
        return (
            F.silu(x),
            x.float().erf().to(_BF16),
            torch.tanh(x),
            torch.exp(x),
            x.sigmoid() * x.abs().log1p(),
            (x * x + 1).rsqrt(),
        )

    source, found = compiled(function, (x,))
    assert "load_two" in source
    for ours, theirs in zip(found, function(x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1.6e-2, atol=1.2e-38, equal_nan=True)


@pytest.mark.parametrize("columns", [64, 77, 1000])
def test_rows(machine, columns):
    """Sums, extremes, and values that are kept from one pass to the next."""
    x, y, w = torch.randn(5, columns).to(_BF16), torch.randn(5, columns).to(_BF16), torch.randn(columns).to(_BF16)

    def function(x, y, w):
        return (
            F.layer_norm(x + y, (columns,), w, w),
            torch.softmax(x * 0.5, -1),
            (x * y).amax(-1),
            x.float().square().sum(-1),
        )

    source, found = compiled(function, (x, y, w))
    assert "load_two" in source
    for ours, theirs in zip(found, function(x, y, w), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1.6e-2, atol=1e-2)
    wrong = x.clone()
    wrong[2, columns - 1] = float("nan")
    assert compiled(lambda x: x.amax(-1) + 0, (wrong,))[1][0].isnan().tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.float() * 2,
        lambda x: (x.float() + torch.arange(256)).to(_BF16),
        lambda x: (x * 2).t().contiguous(),
        lambda x: x[:, :8] * 2 + x[:, 8:16],
        lambda x: torch.cumsum(x, -1),
        lambda x: (x[:, ::2] + x[:, 1::2]) * 2,
        lambda x: torch.cat([x, x + 1], 1) * 2,
    ],
    ids=["float32 is stored", "positions", "transposed", "short rows", "scan", "strided", "guarded"],
)
def test_other_kernels_take_one_register(function):
    """Where an element's place matters, where memory holds another type, and where two registers would be half empty."""
    x = torch.randn(64, 256).to(_BF16)
    source, (found,) = compiled(function, (x,))
    assert "load_two" not in source and "store_two" not in source
    torch.testing.assert_close(found, function(x), rtol=1.6e-2, atol=1e-2)


def test_long_nans_are_rounded_with_care(machine):
    """A NaN of all ones, which bfloat16 has none of, would become a zero."""
    bits = torch.full((128,), -1, dtype=torch.int32)
    source, (found,) = compiled(lambda x: (x * 1.0).to(_BF16), (bits.view(torch.float32),))
    assert "round_bf16(" in source and found.isnan().all()
    source, (found,) = compiled(lambda x: x.view(torch.float32).to(_BF16), (bits,))
    assert "round_bf16(" in source and found.isnan().all()


def test_what_may_hold_a_long_nan():
    """A variable once updated with one, an array once written with one, results of scans, and arguments; not what was read as bfloat16."""
    names = [Variable(name, NO_TILES, torch.float32) for name in ("a", "b", "c", "d", "sum", "given")]
    a, b, c, d, total, given = names
    array, other, last = (
        Pointer("k0", torch.float32),
        Pointer("k1", torch.float32),
        Variable("last", NO_TILES, torch.float32),
    )
    zero = Number(0)

    def op(name, *operands):
        return Op(name, operands, torch.float32, NO_TILES)

    short = ShortNans(
        (
            LocalArray(array, Number(4)),
            LocalArray(other, Number(4)),
            Begin("0", (Accumulator("sum", (total,), constant(0, torch.float32)),)),
            Assign((a,), op("to_dtype", Load(Pointer("b0", _BF16), zero))),
            Assign((b,), op("add", Load(array, zero), a)),
            Assign((c,), op("mul", a, a)),
            Assign((d,), op("mul", Load(other, zero), a)),
            Update((total,), Combine("sum", (total,), (a,), NO_TILES)),
            Store(array, zero, Load(Pointer("b1", torch.float32), zero)),
            RunInPlace("sum", last, other, Number(4), 4, True),
        )
    )
    assert [short(name) for name in names] == [True, False, True, False, True, False]
    assert short(op("to_dtype", Load(Pointer("b2", torch.int32), zero)))
    assert not short(op("bitcast", Load(Pointer("b2", torch.int32), zero)))
