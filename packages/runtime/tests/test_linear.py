"""Linear layers by the kernel of our own beside products in float64: every way to lay operands out, sizes that fill no tile, more threads than one."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from flambeau_runtime.linear import PANEL, LinearOps, has_kernel, linear_ops

MANY = 1 << 20
#: Rows, terms, columns: less than a vector; tails of every kind; more terms than a block has, and more lanes.
SIZES = [
    (1, 1, 1),
    (5, 7, 13),
    (17, 33, 50),
    (128, 64, 96),
    (49, 700, 77),
    (33, 4500, 45),
    (300, 100, 31),
    (20, 3, 700),
    (500, 48, 400),
]


@pytest.fixture
def ops() -> LinearOps:
    """The operators of this machine."""
    found = linear_ops()
    if found is None:
        pytest.skip("there is no extension")
    return found


def weights(columns: int, terms: int) -> list[Tensor]:
    """In rows, in columns, and in neither."""
    weight = torch.randn(columns, terms)
    return [weight, weight.t().contiguous().t(), torch.randn(columns, 2 * terms)[:, ::2]]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_those_of_float64(size: tuple[int, int, int], ops: LinearOps) -> None:
    """Within what adding in float32 costs, and row-major."""
    rows, terms, columns = size
    operands = [torch.randn(rows, terms), torch.randn(terms, rows).t(), torch.randn(rows, terms + 3)[:, 2:-1]]
    for x, weight, bias in itertools.product(operands, weights(columns, terms), (None, torch.randn(2 * columns)[::2])):
        want = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
        packed = ops.packed_linear(x, ops.pack(weight), columns, bias)
        for got in (ops.linear(x, weight, bias, MANY), packed):
            torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5 * terms**0.5)
            assert got.is_contiguous()


@pytest.mark.parametrize(
    ("rows", "most", "calls"), [(16, 15, 1), (16, 16, 0), (48, MANY, 0), (49, MANY, 1), (52, MANY, 0)]
)
def test_the_library_has_the_rows_that_leave_lanes_empty(rows: int, most: int, calls: int, ops: LinearOps) -> None:
    """Asked when the number of rows is known."""
    x, weight = torch.randn(rows, 30), torch.randn(20, 30)
    with torch.profiler.profile() as profile:
        got = ops.linear(x, weight, None, most)
    torch.testing.assert_close(got, x @ weight.t(), rtol=1e-4, atol=1e-4)
    assert sum(event.count for event in profile.key_averages() if event.key == "aten::mm") == calls


def test_numbers_that_are_none_stay_in_their_rows_and_columns(ops: LinearOps) -> None:
    """Lanes that are not there are zeros, which make something of infinities that nobody may see."""
    x, weight = torch.randn(21, 40), torch.randn(35, 40)
    x[3, 5], weight[7, 5] = float("inf"), float("nan")
    for got in (ops.linear(x, weight, None, MANY), ops.packed_linear(x, ops.pack(weight), 35, None)):
        torch.testing.assert_close(got, x @ weight.t(), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_rows(threads: int, ops: LinearOps) -> None:
    """Each element is added up as by one thread."""
    before = torch.get_num_threads()
    x, weight, bias = torch.randn(130, 70), torch.randn(410, 70), torch.randn(410)
    calls = [lambda: ops.linear(x, weight, bias, MANY), lambda: ops.packed_linear(x, ops.pack(weight), 410, bias)]
    calls.append(lambda: ops.linear(x, weight.t().contiguous().t(), bias, MANY))
    want = [call() for call in calls]
    torch.set_num_threads(threads)
    try:
        assert all(torch.equal(call(), one) for call, one in zip(calls, want, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("size", [(0, 3, 4), (2, 0, 4), (2, 3, 0)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_library_does_what_the_kernel_does_not(
    size: tuple[int, int, int], dtype: torch.dtype, ops: LinearOps
) -> None:
    """No elements, and other types."""
    rows, terms, columns = size
    x, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((rows, terms), (columns, terms), (columns,)))
    torch.testing.assert_close(ops.linear(x, weight, bias, MANY), torch.addmm(bias, x, weight.t()))
    if dtype is torch.float32:
        torch.testing.assert_close(
            ops.packed_linear(x, ops.pack(weight), columns, bias), torch.addmm(bias, x, weight.t())
        )


def test_operands_that_do_not_fit_are_refused(ops: LinearOps) -> None:
    """As the library refuses them: before anything is read."""
    x, weight = torch.randn(4, 8), torch.randn(6, 8)
    packed = ops.pack(weight)
    assert packed.shape == (1, 8, PANEL)
    for call in (
        lambda: ops.linear(x[:, :7], weight, None, MANY),
        lambda: ops.linear(x, weight, torch.randn(5), MANY),
        lambda: ops.linear(x, weight[0], None, MANY),
        lambda: ops.packed_linear(x, packed, 40, None),
        lambda: ops.packed_linear(x, packed[:, :, :16], 6, None),
        lambda: ops.pack(weight.double()),
    ):
        with pytest.raises(RuntimeError, match="flambeau::linear"):
            call()


def test_the_kernel_is_there_with_its_instructions(monkeypatch: pytest.MonkeyPatch, ops: LinearOps) -> None:
    """And is not looked for without."""
    monkeypatch.setattr("flambeau_runtime.processor.features", lambda: frozenset({"avx2", "avx512f"}))
    assert has_kernel()
    monkeypatch.setattr("flambeau_runtime.processor.features", lambda: frozenset({"avx2"}))
    assert not has_kernel()
