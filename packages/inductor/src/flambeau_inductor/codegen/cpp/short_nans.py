"""Which values of a kernel have the low half of a NaN zero, so that rounding them to bfloat16 needs no thought of NaNs.

In: the body of a kernel in the kernel IR. Out: a ``ShortNans``, which answers for any value of it.

Rounding adds up to ``0x8000`` to a float's bits, which makes ``-0.0`` of the NaN whose bits are all ones. The processor answers a NaN operand of an
operation with its bits, or a NaN of its own that is short: what was read as bfloat16 stays short through arithmetic. NaNs of other origin do not count.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ... import kernel_ir as kir
from ...kernel_ir import Node
from ...kernel_ir.statements import blocks_of


class ShortNans:
    """Knows the variables and arrays of one kernel that may hold a long NaN; those that nothing in ``body`` defines may.

    It looks when it is first asked: most kernels round nothing to bfloat16.
    """

    def __init__(self, body: kir.Block) -> None:
        self._body: kir.Block | None = body
        self._short: set[str] = set()

    def __call__(self, node: Node) -> bool:
        """Whether every NaN among the values of ``node`` is short; so it is where there can be none."""
        if self._body is not None:
            statements, self._body = list(statements_of(self._body)), None
            self._short.update(s.pointer.name for s in statements if isinstance(s, kir.LocalArray))
            self._short.update(_defined(statements))
            while longer := {name for s in statements for name in self._written(s)} & self._short:
                self._short -= longer
        return self._is_short(node)

    def _is_short(self, node: Node) -> bool:
        dtype = node.dtype
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point or dtype is torch.bfloat16:
            return True
        if isinstance(node, kir.Variable):
            return node.name in self._short
        if isinstance(node, kir.Load):
            return node.pointer.name in self._short
        if isinstance(node, kir.Op):
            return node.name != "bitcast" and dtype is torch.float32 and all(map(self._is_short, node.operands))
        if isinstance(node, kir.Combine):
            return all(map(self._is_short, (*node.old, *node.new)))
        if isinstance(node, kir.Reduce):
            return all(map(self._is_short, node.operands))
        if isinstance(node, kir.Cast | kir.Broadcast):
            return self._is_short(node.value)
        return isinstance(node, kir.Full | kir.Number)

    def _written(self, s: kir.Statement) -> Iterator[str]:
        """The variables and arrays to which a statement gives a value that may be long."""
        if isinstance(s, kir.Assign | kir.Update) and not self._is_short(s.value):
            yield from (target.name for target in s.targets)
        elif isinstance(s, kir.Store) and not self._is_short(s.value):
            yield s.pointer.name
        elif isinstance(s, kir.RunInPlace):
            yield from (s.array.name, s.running.name)


def statements_of(block: kir.Block) -> Iterator[kir.Statement]:
    """The statements of a block and of all blocks inside it, in order."""
    for statement in block:
        yield statement
        for inner in blocks_of(statement):
            yield from statements_of(inner)


def _defined(statements: list[kir.Statement]) -> Iterator[str]:
    for s in statements:
        if isinstance(s, kir.Assign | kir.Begin):
            yield from (target.name for target in s.targets)
