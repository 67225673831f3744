"""The decomposition table and the target set."""

import pytest
import torch
from torch.torch_version import TorchVersion

from flambeau_inductor import decompositions
from flambeau_inductor.decomposition_table import DECOMPOSED, overloads_of
from flambeau_inductor.lowering.registry import lowered_ops, unknown_names
from flambeau_inductor.lowering.target import LIBRARY, target_names


def test_nothing_in_the_target_set_is_decomposed():
    """An op is either wanted or taken apart."""
    table = decompositions()
    wanted = {*lowered_ops(), *(op for name in LIBRARY for op in overloads_of(name))}
    assert not [op for op in wanted if table.get(op) is not None]


def test_the_library_list_and_the_rules_do_not_overlap():
    """What has a rule is not left to the library."""
    ruled = set(lowered_ops())
    assert not [op for name in LIBRARY for op in overloads_of(name) if op in ruled]


@pytest.mark.skipif(
    not "2.13" <= TorchVersion(torch.__version__) < "2.14", reason="another torch has other ops and formulas"
)
def test_every_row_has_an_effect():
    """A name that torch does not know, or a row that changes nothing, is a mistake."""
    table = decompositions()
    idle = [name for name in DECOMPOSED if not any(table.get(op) is not None for op in overloads_of(name))]
    missing = [name for name in LIBRARY if not overloads_of(name)]
    assert (idle, unknown_names(), missing) == ([], (), [])


def test_the_table_is_the_callers_to_change():
    """A fresh dict each time."""
    table = decompositions()
    table.clear()
    assert decompositions()


def test_the_target_set_is_written_down():
    """Sorted, unique, and with the ops everybody expects."""
    names = target_names()
    assert list(names) == sorted(set(names))
    assert {"mm", "add.Tensor", "_softmax.default", "convolution"} <= set(names)
    assert all(not op._schema.is_mutable for op in lowered_ops())
    assert isinstance(torch.ops.aten.mm.default, torch._ops.OpOverload)


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
