"""What a call of an op does besides giving its results.

In: an op of torch's dispatcher, or an operation of the loop IR. Out: whether leaving the call out could be noticed, whether it draws
random numbers, whether it checks something. Schema and tags decide for torch's own ops; of other libraries' ops (collectives,
custom ones) nothing is known, so they stay. The package that traces keeps by the same rule; a test over the registry compares both.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._ops import HigherOrderOperator, OpOverload

from .ir.loops import Assert, Extern, Operation

#: Namespaces of torch whose ops do what their schemas say.
_COMPUTING_NAMESPACES = frozenset(
    {"aten", "prims", "quantized", "_quantized", "mkldnn", "mkl", "onednn", "sparse", "prim"}
)


@functools.cache
def draws(op: Any) -> bool:
    """True for an op that takes numbers from a generator."""
    return isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


@functools.cache
def has_effect(op: Any) -> bool:
    """True when a call whose results nobody reads could still be missed."""
    if not isinstance(op, OpOverload):
        return isinstance(op, HigherOrderOperator)
    schema = op._schema
    return schema.is_mutable or not schema.returns or draws(op) or op.namespace not in _COMPUTING_NAMESPACES


def checks(operation: Operation) -> bool:
    """True for what may raise and does nothing else: an input must not be overwritten before."""
    if isinstance(operation, Extern):
        schema = operation.op._schema
        return operation.checks or (not schema.returns and not schema.is_mutable)
    return isinstance(operation, Assert)
