"""From a lowered graph to the final list of kernels and library calls.

In: ``Graph``. Out: ``KernelBody`` and other operations in the order in which they run, and the buffers they use. Results that
nothing outside their kernel reads are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from attrs import evolve, frozen

from .. import expr as ex
from ..ir.graph import Graph
from ..ir.kernel import Combined, KernelBody, Reduce, ScanStep, Statement, Store
from ..ir.layout import Buffer, Ref
from ..ir.loops import Assert, Extern, Operation, ReadItem, Template
from ..ir.scalar import walk
from .fuse import Fuser, Group, operation_reads
from .loops import improve, index_expressions
from .merge import MOST_BUFFERS, MOST_LOOPS
from .nest import Nest, read_indices, values
from .rows import by_rows

#: Operations that say where elements lie, by the names of their nodes: a kernel is not named after them.
_MOVES = frozenset({
    "alias", "as_strided", "clone", "detach", "expand", "permute", "reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t",
    "transpose", "unbind", "unfold", "unsqueeze", "view",
})  # fmt: skip

Step: TypeAlias = KernelBody | Combined | Template | Extern | ReadItem | Assert


@frozen
class Schedule:
    """``steps`` in running order; ``buffers`` by name."""

    steps: tuple[Step, ...]
    buffers: Mapping[str, Buffer]


def schedule(
    graph: Graph,
    *,
    fuse: bool = True,
    most_buffers: int = MOST_BUFFERS,
    most_loops: int = MOST_LOOPS,
    names: set[str] | None = None,
) -> Schedule:
    """Fuse and order ``graph``. ``fuse=False`` keeps one kernel per operation (used to check the fused program).

    ``names`` are those of kernels that others have, and afterwards these ones' too.
    """
    buffers = graph.buffers
    groups = Fuser(graph.operations, buffers, fuse, most_buffers, most_loops).run()
    needed = _needed_outside(graph, groups, buffers)
    steps: list[Step] = []
    names = set() if names is None else names
    for group in groups:
        if group.nest is None:
            assert group.operation is not None
            steps.append(_alone(group.operation, graph, names))
            continue
        nest = _without_dead(group.nest, needed[group.number], buffers)
        if nest.statements:
            steps.append(_body(by_rows(improve(nest)), buffers, graph, names))
    return Schedule(tuple(steps), buffers)


def _alone(operation: Operation, graph: Graph, taken: set[str]) -> Step:
    """What is no nest, as a step of its own."""
    if not isinstance(operation, Template):
        return operation  # type: ignore[return-value]
    return evolve(operation, name=_name(operation.origins, taken), stacks=_stacks(operation.origins, graph))


def _needed_outside(graph: Graph, groups: Sequence[Group], buffers: Mapping[str, Buffer]) -> dict[int, set[str]]:
    """For each kernel, the buffers that something else reads."""
    leaving = {output.buffer for output in graph.outputs if isinstance(output, Ref)}
    leaving |= {name for group in groups if group.checks for name in group.writes}
    users: dict[str, set[int]] = {}
    for group in groups:
        reads = set(read_indices(group.nest)) if group.nest is not None else operation_reads(group.operation)  # type: ignore[arg-type]
        # What is overwritten in place has to be there before: contents that the operation keeps count as read.
        reads |= {buffers[name].storage for name in group.writes if buffers[name].in_place}
        for name in reads:
            users.setdefault(name, set()).add(group.number)
    return {
        group.number: {name for name in group.writes if name in leaving or users.get(name, set()) - {group.number}}
        for group in groups
    }


def _without_dead(nest: Nest, needed: set[str], buffers: Mapping[str, Buffer]) -> Nest:
    """Drop stores that nobody reads (a store over another buffer's memory is always an effect) and reductions of no use."""
    kept: list[Statement] = []
    used: set[str] = set()
    for statement in reversed(nest.statements):
        if isinstance(statement, Store):
            alive = statement.buffer in needed or buffers[statement.buffer].in_place
        else:
            alive = statement.name in used
        if alive:
            kept.append(statement)
            used |= {n.args[0] for v in values(statement) for n in walk(v) if n.kind == "reduced"}
    statements = tuple(reversed(kept))
    inner = nest.inner
    if inner and not any(isinstance(s, Reduce | ScanStep) or s.level == "inner" for s in statements):
        inner = ()
    return nest if len(statements) == len(nest.statements) else evolve(nest, statements=statements, inner=inner)


def _body(nest: Nest, buffers: Mapping[str, Buffer], graph: Graph, taken: set[str]) -> KernelBody:
    names: dict[str, None] = {}
    scalars: dict[ex.Expr | str, None] = {}
    axes = {axis.symbol for axis in nest.axes}
    for axis in nest.axes:
        for symbol in sorted(ex.free_symbols(axis.size), key=lambda s: s.name):
            scalars[symbol] = None
    for index, _ in index_expressions(nest):
        for symbol in sorted(ex.free_symbols(index), key=lambda s: s.name):
            if symbol not in axes and symbol.definition is None:
                scalars[symbol] = None
    for statement in nest.statements:
        for node in walk(*values(statement)):
            if node.kind == "load":
                names[node.buffer] = None
            elif node.kind == "parameter":
                scalars[node.args[0]] = None
    for statement in nest.statements:
        if isinstance(statement, Store):
            names[statement.buffer] = None
    return KernelBody(
        _name(nest.origins, taken),
        nest.outer,
        nest.inner,
        nest.statements,
        tuple(buffers[name] for name in names),
        tuple(scalars),
        nest.device,
        nest.serial,
        nest.origins,
        _stacks(nest.origins, graph),
    )


def _stacks(origins: Sequence[str], graph: Graph) -> tuple[str, ...]:
    return tuple(dict.fromkeys(graph.stacks[origin] for origin in origins if origin in graph.stacks))


def _name(origins: Sequence[str], taken: set[str]) -> str:
    """``fused_`` and the names of the first operations that compute something, made unique."""
    words = dict.fromkeys(re.sub(r"(_default|_Tensor|_Scalar|_\d+)+$", "", origin) for origin in origins)
    telling = [word for word in words if word not in _MOVES] or list(words)
    text = re.sub(r"\W+", "_", "_".join(telling[:6])) or "kernel"
    base, number = f"fused_{text[:60].strip('_')}", 0
    while f"{base}_{number}" in taken:
        number += 1
    taken.add(f"{base}_{number}")
    return f"{base}_{number}"
