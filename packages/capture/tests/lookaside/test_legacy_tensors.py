"""`torch.Tensor(...)`, `torch.FloatTensor(...)`, `tensor.new(...)`: as eager makes them, in one graph, or a break."""

from __future__ import annotations

import pytest
import torch

MAKERS = {
    "Tensor": lambda x: torch.Tensor,
    "FloatTensor": lambda x: torch.FloatTensor,
    "LongTensor": lambda x: torch.LongTensor,
    "BoolTensor": lambda x: torch.BoolTensor,
    "new": lambda x: x.new,
    "new of double": lambda x: x.double().new,
    "Tensor.new": lambda x: lambda *args: torch.Tensor.new(x, *args),
}
SIZES = [(), (2,), (2, 3), (0,), (torch.Size([2, 1]),), (torch.Size([]),)]
DATA = [[1, 2], (1, 0), [1.7, 2], [[1, 2], [3, 4]], [], [[]], range(3), [True], [(1, 2), [3, 4]]]
REFUSED = [(3.0,), (True,), ("ab",), (None,), (-1,), ([1j],), (2, torch.Size([3])), ([[1], [1, 2]],)]


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sizes_make_new_memory(maker, sizes, check):
    """Of the dtype and on the device of the constructor, whatever device is entered."""

    def program(x):
        with torch.device("meta"):
            made = maker(x)(*sizes)
        return made.zero_(), made.dtype, made.shape, made.requires_grad, x + 1

    check(program)


@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("data", DATA, ids=str)
def test_a_sequence_is_data(maker, data, check):
    """A tuple too, which is no size here."""
    check(lambda x: (maker(x)(data), x + 1))


@pytest.mark.parametrize("maker", [MAKERS["Tensor"], MAKERS["FloatTensor"], MAKERS["new"]])
def test_a_tensor_gets_another_name(maker, check):
    """In the same memory, with its history."""

    def program(x):
        y = x * 2
        made = maker(x)(y)
        y.add_(1)
        return made, y

    check(program)
    check(program, torch.ones(3, requires_grad=True))


def test_the_base_class_takes_a_tensor_of_any_dtype(check, broken):
    """And the others none but their own."""
    check(lambda x: (torch.Tensor(x.long()), x + 1))
    assert broken(lambda x: (x + 1, torch.FloatTensor(x.long()))) == {"unsupported-call"}


@pytest.mark.parametrize("args", REFUSED, ids=str)
def test_what_torch_refuses_raises_as_in_eager(args, broken):
    """The graph ends before it."""
    assert broken(lambda x: (x + 1, x.new(*args))) <= {"unsupported-call", "operator-error"}


def test_a_tensor_among_the_numbers_is_read(broken):
    """Its value decides what is made."""
    assert broken(lambda x: (x + 1, torch.Tensor([x[0, 0], 2.0]))) == {"unsupported-call"}


def test_a_size_that_changes_stays_a_symbol(check):
    """One graph for all of them."""
    records = check(lambda x: x.new(x.size(0), 2).fill_(3), torch.ones(5), dynamic=True)
    records += check(lambda x: torch.Tensor(x.size(0)).fill_(x.size(0)), torch.ones(4), dynamic=True)
    assert len(records) == 2


def test_the_default_dtype_is_looked_at_in_each_call(check):
    """It is part of the state that is guarded."""

    def program(x):
        return torch.Tensor([1, 2]) + x[0, 0]

    check(program)
    torch.set_default_dtype(torch.float64)
    try:
        check(program)
    finally:
        torch.set_default_dtype(torch.float32)
