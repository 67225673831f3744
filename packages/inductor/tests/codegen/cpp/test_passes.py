"""What a later pass of the inner loops takes from an earlier one."""

from __future__ import annotations

import torch

from flambeau_inductor.codegen.cpp.passes import Passes, is_dear, kept_values
from flambeau_inductor.expr import Int
from flambeau_inductor.ir import scalar as sc
from flambeau_inductor.ir.kernel import Store


def test_a_dear_value_below_another_one_is_kept() -> None:
    """It is computed by the first pass; what uses it is the second pass's own, and the cheap load is read again."""
    x = sc.load("x", Int(0), torch.float32)
    dear = sc.op("exp", x)
    first, second = Store("a", Int(0), dear, "inner"), Store("b", Int(0), sc.op("add", dear, x), "inner")
    passes = Passes(((first,), (second,)), ((), (), ()))
    assert kept_values(passes, is_dear) == {dear: 0}
    assert kept_values(Passes(((first,),), ((), ())), is_dear) == {}
