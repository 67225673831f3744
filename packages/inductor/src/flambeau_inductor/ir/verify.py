"""The validator of the loop IR, run between stages in tests and when ``verify`` is set.

In: a ``Graph``. Out: nothing, or ``VerifyError`` naming the broken rule with the operations around it.

Rules: buffers are written once, before they are read; names resolve; a memory is not read through an old name after it was
overwritten; indices use only the operation's axes, known symbols and indirect symbols; dtypes of values follow the op
table; arithmetic never sees half precision.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ..errors import VerifyError
from ..expr import Expr, free_symbols
from ..ops.dtypes import NARROW
from ..ops.table import scalar_op
from .graph import Graph, ScalarInput, TensorInput
from .layout import Ref
from .loops import (
    REDUCTION_KINDS,
    SCAN_KINDS,
    SCATTER_MODES,
    Extern,
    Loop,
    Nested,
    Operation,
    ReadItem,
    Reduction,
    Scan,
    Scatter,
    Template,
    refs,
    written,
)
from .scalar import Scalar, expressions, walk
from .text import operation_text

_HALF_ALLOWED = frozenset({"to_dtype", "where"})


def scalars_of(operation: Loop) -> tuple[Scalar, ...]:
    """The scalars a loop operation evaluates, the ones behind a scatter's index included."""
    found = [operation.value]
    if isinstance(operation, Scatter):
        found += [s.definition for s in free_symbols(operation.index) if s.definition is not None]
    return tuple(found)


def reads_of(operation: Operation) -> frozenset[str]:
    """Names of the buffers an operation reads."""
    if isinstance(operation, Extern):
        return frozenset(r.buffer for r in refs(operation.args) + refs(operation.kwargs))
    if isinstance(operation, Template):
        return frozenset(operation.reads)
    if isinstance(operation, ReadItem):
        return frozenset({operation.source.buffer})
    if isinstance(operation, Loop):
        found = {node.buffer for node in walk(*scalars_of(operation)) if node.kind == "load"}
        if isinstance(operation, Scatter):
            found.add(operation.out.storage)
        return frozenset(found)
    return frozenset()


def verify(graph: Graph) -> None:
    """Check ``graph`` and its bodies; raises VerifyError."""
    for body in graph.bodies.values():
        _Checker(body, graph.bodies).run()
    _Checker(graph, graph.bodies).run()


class _Checker:
    def __init__(self, graph: Graph, bodies: Mapping[str, Graph]) -> None:
        self.graph, self.bodies = graph, bodies
        self.current: dict[str, str] = {}
        self.ready: set[str] = set()
        self.symbols: set[str] = set()

    def run(self) -> None:
        """All rules, operation by operation."""
        for entry in self.graph.inputs:
            if isinstance(entry, TensorInput):
                self._define(entry.buffer.name, entry.buffer.storage)
                self._note_symbols(*entry.buffer.layout.sizes, *entry.buffer.layout.strides, entry.buffer.layout.offset)
            elif isinstance(entry, ScalarInput):
                self.symbols.add(entry.name)
                if entry.value is not None:
                    self._note_symbols(entry.value)
        for constant in self.graph.constants:
            self._define(constant.buffer.name, constant.buffer.storage)
        for position, operation in enumerate(self.graph.operations):
            try:
                self._operation(operation)
            except VerifyError as error:
                error.add_context("checking\n" + self._around(position))
                raise
        for out in self.graph.outputs:
            for ref in refs(out):
                self._read(ref.buffer)

    def _around(self, position: int) -> str:
        lines = []
        for n in range(max(0, position - 2), min(len(self.graph.operations), position + 3)):
            mark = ">" if n == position else " "
            lines.append(f"    {mark} {operation_text(self.graph.operations[n])}")
        return "\n".join(lines)

    def _note_symbols(self, *found: Expr) -> None:
        for e in found:
            self.symbols.update(s.name for s in free_symbols(e))

    def _define(self, name: str, storage: str) -> None:
        if name in self.ready:
            raise VerifyError(f"{name} is written twice")
        if name not in self.graph.buffers:
            raise VerifyError(f"{name} is not among the graph's buffers")
        self.ready.add(name)
        if storage != name and storage not in self.ready:
            raise VerifyError(f"{name} overwrites {storage}, which does not exist yet")
        root = storage
        while (parent := self.graph.buffers[root].storage) != root:
            root = parent
        self.current[root] = name

    def _read(self, name: str) -> None:
        if name not in self.ready:
            raise VerifyError(f"{name} is read before it is written")
        root = name
        while (parent := self.graph.buffers[root].storage) != root:
            root = parent
        if self.current[root] != name:
            raise VerifyError(f"{name} is read after {self.current[root]} overwrote its memory")

    def _operation(self, operation: Operation) -> None:
        for name in reads_of(operation):
            self._read(name)
        if isinstance(operation, Extern):
            self._nested(operation)
            self._note_symbols(*(symbol for symbol, _, _ in operation.binds if isinstance(symbol, Expr)))
        elif isinstance(operation, ReadItem):
            self.symbols.add(operation.name)
            if operation.symbol is not None:
                self._note_symbols(operation.symbol)
        elif isinstance(operation, Template):
            allowed = {axis.symbol.name for axis in operation.axes} | self.symbols
            for node in walk(*operation.bodies.values()):
                self._scalar(node, allowed)
        elif isinstance(operation, Loop):
            self._loop(operation)
        for out in written(operation):
            self._define(out.name, out.storage)

    def _nested(self, operation: Extern) -> None:
        """Bodies exist, and take as many values as they are given."""
        if not isinstance(operation.op, Nested):
            return
        passed, same, slices = operation.args
        given = len(passed[operation.op.kind == "cond" :]) + len(same) + len(slices)
        for name in operation.op.bodies:
            if name not in self.bodies:
                raise VerifyError(f"there is no body {name}")
            if len(self.bodies[name].inputs) != given:
                raise VerifyError(f"body {name} takes {len(self.bodies[name].inputs)} values, {given} are given")

    def _loop(self, operation: Loop) -> None:
        kinds = {Reduction: REDUCTION_KINDS, Scan: SCAN_KINDS}.get(type(operation))
        if kinds is not None and operation.kind not in kinds:  # type: ignore[union-attr]
            raise VerifyError(f"unknown kind {operation.kind}")  # type: ignore[union-attr]
        axes = operation.axes
        if isinstance(operation, Reduction):
            axes = axes + operation.reduce_axes
        allowed = {axis.symbol.name for axis in axes} | self.symbols
        if isinstance(operation, Scatter):
            if operation.mode not in SCATTER_MODES:
                raise VerifyError(f"unknown mode {operation.mode}")
            self._index(operation.index, allowed)
        elif len(operation.axes) != len(operation.out.layout.sizes):
            raise VerifyError(
                f"{operation.out.name} has {len(operation.out.layout.sizes)} dimensions, not {len(operation.axes)}"
            )
        for node in walk(*scalars_of(operation)):
            self._scalar(node, allowed)

    def _index(self, e: Expr, allowed: set[str]) -> None:
        for symbol in free_symbols(e):
            if symbol.definition is None and symbol.name not in allowed:
                raise VerifyError(f"index uses {symbol.name}, which is no axis and no known symbol")

    def _scalar(self, node: Scalar, allowed: set[str]) -> None:
        for e in expressions(node):
            self._index(e, allowed)
        if node.kind == "load" and self.graph.buffers[node.buffer].layout.dtype is not node.dtype:
            raise VerifyError(f"{node!r} has dtype {node.dtype}, its buffer has not")
        if node.kind == "masked" and (
            node.args[0].dtype is not torch.bool or node.args[1].dtype is not node.args[2].dtype
        ):
            raise VerifyError(f"ill-typed {node!r}")
        if node.kind == "op":
            record = scalar_op(node.op)
            if node.op not in _HALF_ALLOWED and any(c.dtype in NARROW for c in node.children):
                raise VerifyError(f"arithmetic on a narrow type: {node!r}")
            if record.domain == "float" and not node.children[0].dtype.is_floating_point:
                raise VerifyError(f"{node.op} on {node.children[0].dtype}")


__all__ = ["Ref", "reads_of", "scalars_of", "verify"]
