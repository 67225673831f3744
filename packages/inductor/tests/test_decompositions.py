"""The decomposition table."""

import pytest
import torch

from flambeau_inductor import decompositions
from flambeau_inductor.lowering.registry import lowered_ops

aten = torch.ops.aten


def test_the_table_is_the_callers_to_change():
    """A fresh dict each time."""
    table = decompositions()
    table.clear()
    assert decompositions()


def test_what_is_wanted_whole_stays_whole():
    """An op is either wanted or taken apart; the ops everybody expects are wanted."""
    table = decompositions()
    assert {*lowered_ops()} <= {op for op, formula in table.items() if formula is None}
    wanted = (aten.mm.default, aten.add.Tensor, aten._softmax.default, aten.convolution.default, aten.mv.default)
    assert [table[op] for op in wanted] == [None] * 5
    assert table[aten.std.dim] is not None


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d"])
def test_bytes_are_interpolated_by_the_kernel(name):
    """Its weights are integers; the formula is for floats alone."""
    formula = decompositions()[getattr(torch.ops.aten, name).default]
    image = torch.randn(1, 1, 4, 4)
    assert formula(image, [6, 6], False).shape == (1, 1, 6, 6)
    assert formula(image.to(torch.uint8), [6, 6], False) is NotImplemented


@pytest.mark.parametrize("name", ["linspace", "logspace"])
def test_steps_that_are_rounded_are_the_kernels(name):
    """On the CPU it rounds the first element of each vector, and steps on from there."""
    formula = decompositions()[getattr(torch.ops.aten, name).default]
    assert formula(-3, 7, 5, dtype=torch.float32).shape == (5,)
    assert formula(-3, 7, 5, dtype=torch.int16, device="meta").shape == (5,)
    assert formula(-3, 7, 5, dtype=torch.int16) is NotImplemented
    assert formula(-3, 7, 5, dtype=torch.bfloat16, device=torch.device("cpu")) is NotImplemented
