"""The elementary functions that kernels carry themselves, over dense samples of float32 beside float64."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton")

import harness
from test_machine_code import TOOL, artifact_of, machine_code

from flambeau_inductor.codegen.triton.large_angles import LARGEST_ANGLE
from flambeau_inductor.ir import scalar
from flambeau_inductor.ir.kernel import Store
from flambeau_inductor.ir.loops import make_axes
from flambeau_inductor.ir.scalar import Scalar

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan]


def between(low: float, high: float, count: int = 200_000) -> Tensor:
    """Float32 numbers of both signs, spread evenly over their bit patterns."""
    first, last = (int(torch.tensor(v).view(torch.int32)) for v in (low, high))
    positive = torch.linspace(first, last, count, dtype=torch.float64).to(torch.int32).view(torch.float32)
    return torch.cat([positive, -positive])


def run(build: list[str], x: Tensor) -> tuple[list[Tensor], str]:
    """Each unary op of ``x`` in one kernel, and the kernel's source."""
    axes = make_axes((x.numel(),))
    given = scalar.load("x", axes[0].symbol, torch.float32)
    one = scalar.constant(1.0, torch.float32)
    values: dict[str, Scalar] = {
        name: scalar.op("add", scalar.op("erf", given), one) if name == "one_and_erf" else scalar.op(name, given)
        for name in build
    }
    tensors = {"x": x, **{name: torch.empty_like(x) for name in build}}
    stores = [Store(name, axes[0].symbol, value) for name, value in values.items()]
    source = harness.run(harness.make_body(tensors, axes, (), stores), tensors)
    return [tensors[name] for name in build], source


def ulps(found: Tensor, exact: Tensor) -> float:
    """The largest distance in units of the last place of a float32 result."""
    exponent = torch.frexp(exact.abs().clamp(min=2.0**-126))[1].double() - 24
    return float(((found.double() - exact).abs() / torch.exp2(exponent)).max())


@pytest.mark.parametrize(("low", "high"), [(1e-42, 1e-3), (1e-3, 4.0), (4.0, LARGEST_ANGLE)])
def test_sine_and_cosine_err_by_less_than_two_units(low: float, high: float) -> None:
    """Every size of argument that is reduced here."""
    x = between(low, high)
    (s, c), source = run(["sin", "cos"], x)
    assert source.count("= sin_cos(") == 1
    assert ulps(s, x.double().sin()) < 1.6 and ulps(c, x.double().cos()) < 1.6


def test_sine_and_cosine_beside_their_zeros() -> None:
    """The floats next to multiples of a quarter turn, where most of the argument cancels."""
    near = (torch.arange(1, 66_000, dtype=torch.float64) * (math.pi / 2)).float()
    x = torch.cat([near, torch.nextafter(near, torch.zeros(())), torch.nextafter(near, torch.full((), 1e9))])
    (s, c), _ = run(["sin", "cos"], x)
    assert ulps(s, x.double().sin()) < 1.6 and ulps(c, x.double().cos()) < 1.6


@pytest.mark.parametrize(("low", "high"), [(1e-42, 0.5), (0.5, 12.0)])
def test_the_hyperbolic_tangent_errs_by_less_than_two_units_and_a_half(low: float, high: float) -> None:
    """On both sides of where its polynomial ends."""
    x = torch.cat([between(low, high), torch.tensor(SPECIAL)])
    (found,), source = run(["tanh"], x)
    assert "tanh_float(" in source
    assert ulps(found[:-5], x[:-5].double().tanh()) < 2.5
    torch.testing.assert_close(found[-5:], x[-5:].tanh(), rtol=0, atol=0, equal_nan=True)
    assert math.copysign(1.0, float(found[-4])) == -1.0


@pytest.mark.parametrize("large", [2 * LARGEST_ANGLE, 1e22, 3.4e38, math.inf, -math.inf, math.nan])
def test_one_large_argument_is_reduced_by_itself(large: float) -> None:
    """It and its neighbours in the block are right."""
    x = torch.linspace(-9, 9, 5000)
    x[1234] = large
    (s, c), _ = run(["sin", "cos"], x)
    torch.testing.assert_close(s, x.sin(), rtol=3e-7, atol=1e-9, equal_nan=True)
    torch.testing.assert_close(c, x.cos(), rtol=3e-7, atol=1e-9, equal_nan=True)


def test_log1p_errs_by_less_than_two_units() -> None:
    """From the smallest numbers to the largest, and close to minus one."""
    positive, small = between(1e-42, 3.4e38), between(1e-42, 0.99999994)
    x = torch.cat([positive[positive > 0], small, between(1e-3, 0.5), between(0.5, 3.0)])
    x = x[x > -1]
    (found,), _ = run(["log1p"], x)
    assert ulps(found, x.double().log1p()) < 1.8


def test_erf_beside_one() -> None:
    """One and erf, as GELU has it: within a unit of one plus what the device's exponential errs."""
    x = torch.cat([between(1e-42, 1e-3), between(1e-3, 6.0)])
    (found,), source = run(["one_and_erf"], x)
    assert "erf_beside_one(" in source and "libdevice.erf" not in source
    assert float((found.double() - (1 + x.double().erf())).abs().max()) < 1.5 * 2**-23


def test_erf_by_itself_is_the_librarys() -> None:
    """Close to zero its relative error counts."""
    (_,), source = run(["erf"], between(1e-3, 4.0, 100))
    assert "libdevice.erf" in source


@pytest.mark.parametrize("name", ["sin", "cos", "log1p", "one_and_erf"])
def test_special_values(name: str) -> None:
    """Zeros keep their sign, infinities and NaN stay what they must be; so do numbers from minus one down."""
    x = torch.tensor([*SPECIAL, -1.0, -1.5, 1e-45, -1e-45, 3.4e38, 30.0, -30.0])
    (found,), _ = run([name], x)
    wide = x.double()
    expected = (1 + wide.erf() if name == "one_and_erf" else getattr(torch, name)(wide)).float()
    torch.testing.assert_close(found, expected, rtol=3e-7, atol=2e-7 if name == "one_and_erf" else 0, equal_nan=True)
    assert torch.equal(found.signbit()[~found.isnan()], expected.signbit()[~found.isnan()])


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_keep_their_sign(zero: float) -> None:
    """In a block with no number that would be treated apart."""
    for name in ("sin", "log1p"):
        (found,), _ = run([name], torch.full((64,), zero))
        assert torch.equal(found.signbit(), torch.full((64,), zero).signbit())


@pytest.mark.skipif(not TOOL.exists(), reason="Triton came without cuobjdump")
def test_large_angles_cost_no_vote_of_the_block(tmp_path: Path) -> None:
    """A thread looks at its own angles: no barrier, nothing in shared memory, and few enough registers for five blocks of 256."""
    (code,) = machine_code(lambda x: x.sin() * x.cos(), [((4096, 4096), torch.float32)], tmp_path)
    assert "BAR.SYNC" not in code and "STS" not in code and "MUFU" not in code
    assert max(int(number) for number in re.findall(r"\bR(\d+)\b", code)) < 48


@pytest.mark.skipif(not TOOL.exists(), reason="Triton came without cuobjdump")
def test_gelu_takes_few_instructions(tmp_path: Path) -> None:
    """A pointwise kernel in bfloat16 with an error function in it stays below what memory takes."""
    specs = [((16384, 2048), torch.bfloat16), ((2048,), torch.bfloat16)]
    (code,) = machine_code(lambda x, b: F.gelu(x + b) * 1.5, specs, tmp_path)
    (kernel,) = artifact_of(lambda x, b: F.gelu(x + b) * 1.5, specs).kernels
    each = kernel.meta["constexprs"]["XBLOCK"] // (32 * kernel.meta["num_warps"])
    instructions = code.count(" ;") - code.count("NOP;")
    assert instructions / each < 25
