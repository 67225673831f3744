"""The core set: what is taken apart for every compiler."""

from collections import Counter

import pytest
import torch
from torch._decomp import decomposition_table
from torch.torch_version import TorchVersion

from flambeau_autograd import core_table
from flambeau_autograd.decompose.core import CORE_NAMES, EXTRA
from flambeau_autograd.decompose.registry import merged, overloads

aten = torch.ops.aten


@pytest.mark.skipif(
    not "2.13" <= TorchVersion(torch.__version__) < "2.14", reason="another torch has other ops and formulas"
)
def test_every_name_has_an_effect():
    """Torch knows it and has a formula for it, and it stands in one place."""
    assert [name for name, count in Counter(CORE_NAMES).items() if count > 1] == []
    idle = [
        name
        for name in CORE_NAMES
        if all(op not in decomposition_table or op in EXTRA for op in overloads(getattr(aten, name)))
    ]
    assert idle == []


def test_products_stay_whole():
    """A library computes them in an order of its own."""
    products = (aten.mm, aten.bmm, aten.addmm, aten.baddbmm, aten.mv, aten.addmv, aten.dot, aten.vdot, aten.convolution)
    assert [packet for packet in products for op in overloads(packet) if op in core_table()] == []


def test_a_caller_may_keep_an_op_whole():
    """None takes it out; the core itself stays as it is."""
    assert aten.stack.default not in merged({aten.stack.default: None})
    assert aten.stack.default in core_table()
