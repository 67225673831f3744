"""`int()`, `float()` and `bool()` of a tensor are numbers of the graph, and Python's where they come back."""

from __future__ import annotations

import warnings

import pytest
import torch

KINDS = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_of_every_kind(dtype, check):
    """Values and types."""
    numbers = torch.tensor([1.9, 0.0, 3.2]).to(dtype)
    (record,) = check(
        lambda x: (int(x.max()), float(x.max()), bool(x.min()), not bool(x[0] > 0)), numbers, fullgraph=False
    )[:1]
    assert record.operations
    check(lambda x: (int(x.max()), float(x.max()), bool(x.min())), numbers)


@pytest.mark.parametrize("number", [1e30, -1e30, float("inf")])
def test_beyond_64_bits(number, check):
    """Python's integer, or its error."""
    check(lambda x: int(x.sum()), torch.tensor([number], dtype=torch.float64), fullgraph=False)


def test_of_what_requires_grad(check):
    """Torch warns once in a process, whoever is the first; the number is no part of autograd's graph."""
    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(lambda x: (x.pow(2).sum() * 2, float(x.sum())), x.detach())
        check(lambda x: float((x * 2).sum()), x)


def test_of_several_elements(broken):
    """Torch refuses."""
    assert broken(lambda x: float(x)) == {"data-dependent-value"}
