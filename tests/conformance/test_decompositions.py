"""The tables of decompositions of two packages agree about what a library computes."""

from __future__ import annotations

import torch

from flambeau_autograd import core_table
from flambeau_inductor import decompositions
from flambeau_inductor.ops.aten import Treatment, aten_op


def test_what_the_library_keeps_is_not_taken_apart_for_others() -> None:
    """An op that is better whole is so for every backend; what one compiler has a rule for, another may want in parts."""
    torn = [op for op in core_table() if aten_op(op).treatment is Treatment.LIBRARY]
    assert torn == []
    assert decompositions()[torch.ops.aten.mv.default] is None
