"""Branches of which one side does nothing but raise: `assert`, and `if ...: raise`.

In: a branch on a number that comes out of a tensor. Out: the side that goes on, with a check in the graph that it is the one; where it is not, plain
Python runs the frame, and raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..signals import GraphBreak
from ..values.symbolic import SymbolicValue
from .assumed_branches import side_that_goes_on, truth_of_jump
from .conversions import as_truth

if TYPE_CHECKING:
    from ..bytecode.model import Instruction
    from ..values.base import Value
    from .frame import Frame


def truth_or_raise(f: Frame, i: Instruction, value: Value) -> bool:
    """Which way a conditional jump goes."""
    try:
        return truth_of_jump(f, f.index, value)
    except GraphBreak as error:
        if error.code != "data-dependent-branch":
            raise
        goes_on = side_that_goes_on(f, f.index)
        condition = as_truth(f.tracer, value) if goes_on is not None else None
        if condition is None or goes_on is None:
            raise
        if not goes_on:
            negated = f.tracer.arithmetic.symbolic(torch.sym_not, [condition])
            if not isinstance(negated, SymbolicValue):
                raise
            condition = negated
        f.tracer.graph.check(condition.node, condition.symbol)
        return goes_on
