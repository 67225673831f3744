"""torch's op database as programs: which ops, their samples, how one is run forward and backward and compared with eager.

In: an `OpInfo`, a device, how many samples. Out: nothing, or an assertion. Used on the CPU by `test_op_db.py`, on a GPU by
`tests/gpu/test_op_db.py`, and counted by `coverage.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils import _pytree as pytree

from flambeau.compile import compile_recorded
from flambeau.records import Recorder
from tests.comparison import assert_same

#: Ops whose result is not a function of their inputs: uninitialised memory.
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
#: Ops of which a graph runs in eager -> a part of the reason that must be given. Any other graph that runs in eager is a fault.
RUNS_IN_EAGER: dict[str, str] = {
    # The gradient of a value that is a tensor: autograd's formula needs the distinct indices, and their number is data.
    "index_fill": "DynamicOutputShapeException: aten._unique",
    # The gradient of values put where a mask says: as many as the mask has ones.
    "index_put": "DynamicOutputShapeException: aten.nonzero",
    # A private op that writes running statistics it does not declare as returned; torch.nn's batch norms do not call it.
    "_batch_norm_with_update": "writes to its arguments",
    # Of a 0-d tensor: torch's kernel, run on fake tensors, reads the index.
    "put": "DataDependentOutputException: aten._local_scalar_dense",
    "take": "DataDependentOutputException: aten._local_scalar_dense",
    # Sparse tensors are not compiled.
    "to_sparse": "a tensor of layout torch.sparse_coo",
}
#: Ops of which one of the first six samples differs from eager -> how. Once none does, the slow suite says so.
DIFFERS = {
    "linalg.eig": "eager's backward looks at the data to refuse a loss that depends on the eigenvectors' phase",
}


def candidates() -> list[OpInfo]:
    """float32 ops of the database with a deterministic result."""
    return [op for op in op_db if torch.float32 in op.dtypes and op.name not in UNDETERMINED]


def choice(count: int, seed: int) -> list[OpInfo]:
    """A fixed random choice, sorted by name."""
    return sorted(random.Random(seed).sample(candidates(), count), key=identifier)


def identifier(op: OpInfo) -> str:
    """Name and variant."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def parameters(ops: list[OpInfo], strict: bool = False, differs: Mapping[str, str] = DIFFERS) -> list[Any]:
    """The ops as parameters of a test; those of `differs` are expected to fail, and with `strict` must."""
    return [
        pytest.param(op, id=identifier(op), marks=[pytest.mark.xfail(reason=differs[identifier(op)], strict=strict)])
        if identifier(op) in differs
        else pytest.param(op, id=identifier(op))
        for op in ops
    ]


def samples(op: OpInfo, count: int, device: str = "cpu") -> Iterator[SampleInput]:
    """The first few samples; fixed by the seed."""
    torch.manual_seed(0)
    return islice(op.sample_inputs(device, torch.float32, requires_grad=op.supports_autograd), count)


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
        # Not `randn_like`: numbers are drawn in the order of memory, and layouts may differ.
        tangents = [torch.randn(output.shape, dtype=output.dtype, device=output.device) for output in outputs]
        grads = torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)
    return result, list(grads)


def program_of(op: OpInfo) -> Callable[..., Any]:
    """A fresh function that calls the op: ops themselves are not compiled, only Python functions are."""
    function = op.get_op()

    def program(value: Any, /, *args: Any, **kwargs: Any) -> Any:
        return function(value, *args, **kwargs)

    return program


def check(op: OpInfo, count: int, device: str = "cpu") -> None:
    """Compare compiled and eager on `count` samples, and see that what should be compiled was.

    An exception of ours is never excused by another one of eager's; a graph runs in eager only where `RUNS_IN_EAGER` says so.
    """
    program, recorder = program_of(op), Recorder()
    for sample in samples(op, count, device):
        compiled = compile_recorded(program, recorder, dynamic=False)
        try:
            expected = run(program, sample)
        except Exception as error:
            with pytest.raises(type(error)):
                run(compiled, sample)
        else:
            result, gradients = run(compiled, sample)
            assert_same(result, expected[0], rtol=1e-3, atol=1e-4)
            # How a gradient is laid out is the library's choice, in eager too.
            assert_same(gradients, expected[1], strides=False, rtol=1e-3, atol=1e-4)
    known = RUNS_IN_EAGER.get(identifier(op))
    unexpected = [reason for reason in recorder.eager_graphs if known is None or known not in reason]
    assert not unexpected, f"runs in eager: {unexpected[0]}"
