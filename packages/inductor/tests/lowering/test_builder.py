"""What lowering decides about one value: whether it is stored, or computed again by each reader."""

import functools
from typing import Any

import pytest
import torch

from flambeau_inductor.context import CompileContext
from flambeau_inductor.expr import Int, SymbolTable
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.layout import Buffer, Layout, Ref
from flambeau_inductor.lowering.builder import Builder
from flambeau_inductor.lowering.values import TensorValue


def _stored(function: Any, device: str) -> bool:
    """Whether a value that two results read is stored first, by what one more evaluation takes on ``device``."""
    builder = Builder(CompileContext(), SymbolTable())
    ref = Ref.whole(Buffer("x", Layout.contiguous((Int(64),), torch.float32, torch.device(device))))
    x = TensorValue.of_ref(ref)
    made = builder.pointwise(function, x, sizes=x.sizes, dtype=x.dtype, device=x.device, compute=x.dtype)
    return builder.is_costly(made)


@pytest.mark.parametrize(
    ("function", "on_cpu", "on_cuda"),
    [
        (lambda x: sc.op("exp", x), False, False),
        (lambda x: sc.op("tan", x), True, False),  # a CPU calls a library for each element
        (lambda x: sc.op("lgamma", x), True, True),
        (lambda x: sc.op("exp", sc.op("log", sc.op("tanh", x))), True, False),
        (lambda x: functools.reduce(lambda v, _: sc.op("add", v, x), range(25), x), True, True),  # long code
        (lambda x: functools.reduce(lambda v, _: sc.op("add", v, x), range(24), x), False, False),
    ],
)
def test_what_costs_more_than_memory_is_stored(function: Any, on_cpu: bool, on_cuda: bool) -> None:
    """Each target has its own prices, of functions and of memory."""
    assert (_stored(function, "cpu"), _stored(function, "cuda")) == (on_cpu, on_cuda)
