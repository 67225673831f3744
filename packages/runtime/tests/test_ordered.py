"""Products whose elements are each one sum, added up in the order of its terms: beside products in float64, and the same bits for every number of rows and of threads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from flambeau_runtime.ordered import ordered_products

ROWS = 70
#: Terms and columns: one, tails of every kind, more terms than a panel has.
SIZES = [(1, 1), (7, 33), (64, 64), (257, 100), (700, 40)]
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many threads torch has."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("terms", "columns"), SIZES)
def test_a_row_is_the_same_among_any_number(dtype: torch.dtype, terms: int, columns: int, threads: int) -> None:
    """In any strides, in one matrix or one of several."""
    product = ordered_products()
    torch.manual_seed(terms)
    x, weight, bias = (
        torch.randn(ROWS, terms).to(dtype),
        torch.randn(columns, terms).to(dtype),
        torch.randn(columns).to(dtype),
    )
    whole = product(x, weight.t(), bias, 1.0, 1.0)
    exact = bias.double() + x.double() @ weight.double().t()
    error = torch.finfo(dtype).eps + terms * torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).eps
    assert (whole.double() - exact).abs().max() <= error * exact.abs().max()
    for rows in range(1, ROWS + 1):
        assert torch.equal(product(x[:rows], weight.t(), bias, 1.0, 1.0), whole[:rows])
    turned = product(x[:9].t().contiguous().t(), weight.t().contiguous(), bias, 1.0, 1.0)
    several = product(x[:9].unsqueeze(1), weight.t().expand(9, terms, columns), bias, 1.0, 1.0)
    assert torch.equal(turned, whole[:9]) and torch.equal(several.squeeze(1), whole[:9])


def test_factors_and_products_of_nothing() -> None:
    product = ordered_products()
    x, y, bias = torch.ones(2, 3), torch.ones(3, 2), torch.full((2, 2), torch.nan)
    assert torch.equal(product(x, y, bias, 0.0, 2.0), torch.full((2, 2), 6.0))
    assert torch.equal(product(x, y, torch.ones(1), 0.5, 1.0), torch.full((2, 2), 3.5))
    assert torch.equal(product(torch.ones(2, 0), torch.ones(0, 3), None, 1.0, 1.0), torch.zeros(2, 3))
    assert product(torch.ones(0, 3, 2), torch.ones(0, 2, 4), None, 1.0, 1.0).shape == (0, 3, 4)


def test_what_does_not_fit_is_an_error() -> None:
    product = ordered_products()
    for x, y in (
        (torch.ones(2, 3), torch.ones(2, 3)),
        (torch.ones(2), torch.ones(2)),
        (torch.ones(2, 2), torch.ones(2, 2).double()),
    ):
        with pytest.raises(RuntimeError, match="ordered_products"):
            product(x, y, None, 1.0, 1.0)
