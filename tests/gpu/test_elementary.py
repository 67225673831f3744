"""Elementary functions as kernels of a GPU compute them: over all sizes of arguments, beside float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SMALL = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 0.5, 9.0])
#: The float32 that comes closest to a multiple of π/2, and others known to come close.
CLOSE = torch.tensor([0x6F5BE90D, 0x7F6AC0C2, 0x5B06B3A7, 0x7F7FFFFF, 0x47CD1401], dtype=torch.int32).view(
    torch.float32
)


def patterns(low: float, high: float, count: int) -> Tensor:
    """Finite float32 numbers of both signs with random bits, none below ``low`` or above ``high`` in size."""
    first, last = (int(torch.tensor(value).view(torch.int32)) for value in (low, high))
    drawn = torch.randint(first, last + 1, (count,), generator=torch.Generator().manual_seed(3), dtype=torch.int32)
    return drawn.view(torch.float32) * torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0)


def ulps(found: Tensor, exact: Tensor) -> float:
    """The largest distance in units of the last place of a float32 result."""
    exponent = torch.frexp(exact.abs().clamp(min=2.0**-126))[1].double() - 24
    return float(((found.double() - exact).abs() / torch.exp2(exponent)).max())


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("count", [7, 1 << 20])
def test_sine_and_cosine_of_all_sizes(count: int, shuffled: bool) -> None:
    """Large angles by themselves, and between small ones in one thread."""
    x = torch.cat([patterns(1e5, 3.4e38, count), CLOSE, -CLOSE, SMALL, patterns(1e-3, 1e5, count)])
    if shuffled:
        x = x[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(4))]
    results = flambeau.compile(lambda x: (x.sin(), x.cos()))(x.cuda())
    for found, exact in zip(results, (x.double().sin(), x.double().cos()), strict=True):
        assert ulps(found.cpu(), exact) < 1.6
        assert torch.equal(found.cpu().signbit(), exact.signbit())


@pytest.mark.parametrize("function", [torch.sin, torch.cos])
def test_angles_that_are_no_numbers(function: Callable[[Tensor], Tensor]) -> None:
    """Infinities and NaN have no sine; their neighbours have."""
    x = torch.tensor([1.0, float("inf"), 2e9, float("nan"), -float("inf"), -3.0])
    found = flambeau.compile(function)(x.cuda()).cpu()
    torch.testing.assert_close(found, function(x.double()).float(), rtol=3e-7, atol=0, equal_nan=True)


def test_logarithm_of_one_plus_all_sizes() -> None:
    """From the smallest numbers to the largest, and what has no logarithm."""
    x = torch.cat([patterns(1e-42, 3.4e38, 1 << 20), patterns(1e-3, 4.0, 1 << 20), SMALL])
    x[0] = float("inf")
    found, exact = flambeau.compile(torch.log1p)(x.cuda()).cpu(), x.double().log1p()
    known = exact.isfinite()
    torch.testing.assert_close(found[~known], exact[~known].float(), equal_nan=True)
    assert ulps(found[known], exact[known]) < 1.8
