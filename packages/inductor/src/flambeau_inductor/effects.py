"""What a call of an op does besides giving its results.

In: an op of torch's dispatcher, or an operation of the loop IR. Out: whether leaving the call out could be noticed, whether it draws
random numbers, whether it checks something. Schema and tags decide for torch's own ops (``ops/aten.py``); of other libraries' ops
(collectives, custom ones) nothing is known, so they stay. The package that traces keeps by the same rule; a test over the registry compares both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from torch._ops import HigherOrderOperator, OpOverload

from .devices import device_of
from .ir.layout import Buffer
from .ir.loops import Assert, Extern, Loop, Nested, Operation, Reduction
from .ir.scalar import Scalar, walk
from .ir.verify import scalars_of
from .ops.aten import aten_op

#: Scalar ops that divide: of whole numbers by zero they fail.
DIVISIONS = frozenset({"floordiv", "truncdiv", "remainder", "fmod"})


def draws(op: Any) -> bool:
    """True for an op that takes numbers from a generator."""
    if isinstance(op, Nested):
        return op.draws
    return isinstance(op, OpOverload) and aten_op(op).draws


def has_effect(op: Any) -> bool:
    """True when a call whose results nobody reads could still be missed."""
    if not isinstance(op, OpOverload):
        return draws(op) or isinstance(op, HigherOrderOperator)
    return aten_op(op).effect


def checks(operation: Operation) -> bool:
    """True for what has to run although nobody reads its results, since it may raise."""
    if isinstance(operation, Extern):
        if isinstance(operation.op, Nested):
            return operation.checks
        schema = operation.op._schema
        return operation.checks or (not schema.returns and not schema.is_mutable)
    return isinstance(operation, Assert) or (isinstance(operation, Reduction) and operation.checks)


def divides(*values: Scalar) -> bool:
    """True where integers are divided by what may be zero."""
    return any(
        node.op in DIVISIONS
        and not node.dtype.is_floating_point
        and not (node.children[1].kind == "constant" and node.children[1].args[0])
        for node in walk(*values)
    )


def may_fail(operation: Operation) -> bool:
    """True for what may raise for the values it is given: an input must not be overwritten before.

    Loops that read or write at computed positions do not count: in a graph for which it matters, checks come first
    (``lowering/positions.py``).
    """
    if not isinstance(operation, Loop) or checks(operation):
        return checks(operation)
    return device_of(operation.out.layout.device).eager.divisors_are_checked and divides(*scalars_of(operation))


def writes_last(steps: Iterable[tuple[Iterable[str], bool]], buffers: Mapping[str, Buffer], inputs: Set[str]) -> bool:
    """Whether nothing is written to ``inputs`` before the last step that may raise; each step by what it writes, and whether it may.

    Not so of memory of a device that queues work, of which nobody knows when it is written.
    """
    written = False
    for names, fails in steps:
        roots = [_root(buffers[name], buffers) for name in names]
        targets = [root for root in roots if root.name in inputs]
        written |= bool(targets)
        if (written and fails) or any(device_of(root.layout.device).queues for root in targets):
            return False
    return True


def _root(buffer: Buffer, buffers: Mapping[str, Buffer]) -> Buffer:
    while buffer.in_place:
        buffer = buffers[buffer.storage]
    return buffer
