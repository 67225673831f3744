"""Sums at computed positions, with many on one place: in kernels of their own, no further from the exact sums than so many additions may round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import flambeau

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

FORMATS = [torch.float32, torch.bfloat16, torch.float16]


def add_rows(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return x.index_add(0, rows, values)


def put_rows(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return x.index_put((rows,), values, accumulate=True)


def add_in_place(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    x = x.clone()
    x.scatter_add_(0, rows[:, None].expand_as(values), values)
    return x


def gradient_of_a_lookup(x: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    table = x.detach().requires_grad_()
    (table[rows] * values).sum().backward()
    assert table.grad is not None
    return table.grad


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("function", [add_rows, put_rows, add_in_place])
def test_as_near_as_additions_in_any_order(function: Callable[..., Tensor], dtype: torch.dtype) -> None:
    """Sizes that change, a row of odd length among them."""
    compiled = flambeau.compile(function)
    for count, width in ((300, 64), (500, 64), (41, 33)):
        x, values = (torch.randn(n, width, device="cuda", dtype=dtype) for n in (20, count))
        rows = torch.randint(0, 20, (count,), device="cuda")
        exact = function(x.double(), rows, values.double())
        size = function(x.abs().double(), rows, values.abs().double())
        # Atomics add in an order of their own; each addition rounds a partial sum, which is no larger than the sum of sizes.
        additions = rows.bincount(minlength=20)[:, None] + 1
        bound = additions * torch.finfo(dtype).eps / 2 * size
        assert ((compiled(x, rows, values).double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_gradient_of_a_lookup(dtype: torch.dtype) -> None:
    """Rows that are looked up once each get eager's very gradient."""
    table = torch.randn(64, 48, device="cuda", dtype=dtype)
    rows = torch.randperm(64, device="cuda")[:40]
    values = torch.randn(40, 48, device="cuda", dtype=dtype)
    torch.testing.assert_close(
        flambeau.compile(gradient_of_a_lookup)(table, rows, values),
        gradient_of_a_lookup(table, rows, values),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("dtype", FORMATS)
def test_an_input_is_written(dtype: torch.dtype) -> None:
    """In place, with and without a gradient."""

    def run(x: Tensor, rows: Tensor, values: Tensor) -> None:
        x.index_add_(0, rows, values * 2)

    compiled = flambeau.compile(run)
    rows = torch.randperm(20, device="cuda")[:12]
    for grad in (False, True):
        expected, found = (torch.ones(20, 8, device="cuda", dtype=dtype) for _ in range(2))
        values = torch.randn(12, 8, device="cuda", dtype=dtype, requires_grad=grad)
        run(expected, rows, values)
        compiled(found, rows, values)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_deterministic_algorithms_are_eagers() -> None:
    """Where they are asked for, the library's kernels run: twice the same result, and eager's."""
    x, values = torch.zeros(5, 64, device="cuda"), torch.randn(1000, 64, device="cuda")
    rows = torch.randint(0, 5, (1000,), device="cuda")
    torch.use_deterministic_algorithms(True)
    try:
        compiled = flambeau.compile(put_rows)
        first = compiled(x, rows, values)
        torch.testing.assert_close(compiled(x, rows, values), first, rtol=0, atol=0)
        torch.testing.assert_close(put_rows(x, rows, values), first, rtol=0, atol=0)
    finally:
        torch.use_deterministic_algorithms(False)
