"""A fixed random choice of torch's op database, forward and backward through the default backend, equal to eager.

An op that is not lowered becomes a library call, so every one of them must give the right answer. The whole database runs in
the slow suite.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

import flambeau
from tests.comparison import assert_same

#: Ops whose result is not a function of their inputs: uninitialised memory, or random numbers by an own generator object.
UNDETERMINED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    }
)
SAMPLES = 2


def candidates() -> list[OpInfo]:
    """float32 ops of the database with a deterministic result."""
    return [op for op in op_db if torch.float32 in op.dtypes and op.name not in UNDETERMINED]


def identifier(op: OpInfo) -> str:
    """Name and variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


CHOSEN = sorted(random.Random(20).sample(candidates(), 150), key=identifier)


def samples(op: OpInfo, count: int) -> Iterator[SampleInput]:
    """The first few samples; fixed by the seed."""
    torch.manual_seed(0)
    return islice(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd), count)


def run(function: Any, sample: SampleInput) -> tuple[Any, list[Any]]:
    """Result and gradients for fresh copies of a sample's tensors."""
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    copies = [
        leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf
        for leaf in leaves
    ]
    value, args, kwargs = pytree.tree_unflatten(copies, spec)
    torch.manual_seed(0)
    result = function(value, *args, **kwargs)
    outputs = [
        leaf
        for leaf in pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None
    ]
    inputs = [leaf for leaf in copies if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    grads: Any = []
    if outputs and inputs:
        torch.manual_seed(1)
        tangents = [torch.randn_like(output) for output in outputs]
        grads = torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)
    return result, list(grads)


@pytest.mark.parametrize("op", CHOSEN, ids=identifier)
def test_equals_eager(op: OpInfo) -> None:
    """Forward and backward of a few samples."""
    check(op, SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("op", candidates(), ids=identifier)
def test_whole_database(op: OpInfo) -> None:
    """Every op, more samples."""
    check(op, 6)


def program_of(op: OpInfo) -> Callable[..., Any]:
    """A fresh function that calls the op: ops themselves are not compiled, only Python functions are."""
    function = op.get_op()

    def program(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    return program


def check(op: OpInfo, count: int) -> None:
    """Compare compiled and eager on `count` samples: an exception of ours is never excused by one of eager's."""
    program = program_of(op)
    for sample in samples(op, count):
        compiled = flambeau.compile(program, dynamic=False)
        try:
            expected = run(program, sample)
        except Exception as error:
            with pytest.raises(type(error)):
                run(compiled, sample)
        else:
            assert_same(run(compiled, sample), expected, rtol=1e-3, atol=1e-4)
