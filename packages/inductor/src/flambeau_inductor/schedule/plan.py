"""From a lowered graph to the final list of kernels and library calls.

In: ``Graph``. Out: ``KernelBody`` and other operations in the order in which they run, and the buffers they use. Results that
nothing outside their kernel reads are not stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from attrs import evolve, frozen

from .. import expr as ex
from ..ir.graph import Graph
from ..ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ..ir.layout import Buffer, Ref
from ..ir.loops import Axis, Operation, Template
from ..ir.scalar import walk
from ..log import LOOPS_ORDERED, Text, logger
from ..ops.aten import moving_names
from .fuse import Fuser, Group, operation_reads
from .loops import improve, index_expressions
from .merge import MAX_FUSION_SIZE, MAX_FUSION_UNIQUE_IO_BUFFERS
from .nest import Nest, read_indices, values
from .rows import by_rows
from .steps import Step


def axes_text(before: Nest, after: Nest) -> str:
    """What a kernel computes, its axes as the operations had them and as they are, outermost first; those behind the bar are summed or scanned."""

    def words(nest: Nest) -> str:
        parts = (", ".join(f"{axis.symbol}: {axis.size}" for axis in axes) for axes in (nest.outer, nest.inner))
        return " | ".join(filter(None, parts)) or "one point"

    return f"of {', '.join(after.origins)}\nbefore: {words(before)}\nafter:  {words(after)}\n"


@frozen
class Schedule:
    """``steps`` in running order; ``buffers`` by name."""

    steps: tuple[Step, ...]
    buffers: Mapping[str, Buffer]


def schedule(
    graph: Graph,
    *,
    fuse: bool = True,
    max_fusion_unique_io_buffers: int = MAX_FUSION_UNIQUE_IO_BUFFERS,
    max_fusion_size: int = MAX_FUSION_SIZE,
    loop_ordering_after_fusion: bool = True,
    is_named: bool = True,
    names: set[str] | None = None,
    in_order: bool = False,
) -> Schedule:
    """Fuse and order ``graph``. ``fuse=False`` keeps one kernel per operation (used to check the fused program).

    ``loop_ordering_after_fusion=False`` leaves the axes of kernels as the operations have them. ``names`` are those of kernels that others have, and
    afterwards these ones' too; not ``is_named``, they say nothing of what a kernel computes. ``in_order`` is said of every kernel.
    """
    buffers = graph.buffers
    groups = Fuser(graph.operations, buffers, fuse, max_fusion_unique_io_buffers, max_fusion_size).run()
    needed = _needed_outside(graph, groups, buffers)
    steps: list[Step] = []
    names = set() if names is None else names
    for group in groups:
        if group.nest is None:
            assert group.operation is not None
            steps.append(_alone(group.operation, graph, names, is_named=is_named))
            continue
        nest = _without_dead(group.nest, needed[group.number], buffers)
        if nest.statements:
            before = nest
            nest = by_rows(improve(nest)) if loop_ordering_after_fusion else nest
            logger.debug(LOOPS_ORDERED, artifact="loop_ordering", text=Text(partial(axes_text, before, nest)))
            steps.append(body_of(nest, buffers, graph, names, is_named=is_named, in_order=in_order))
    return Schedule(tuple(steps), buffers)


def _alone(operation: Operation, graph: Graph, taken: set[str], *, is_named: bool) -> Step:
    """What is no nest, as a step of its own."""
    if not isinstance(operation, Template):
        return operation  # type: ignore[return-value]
    origins = operation.origins if is_named else ()
    return evolve(operation, name=name_of(origins, taken, graph.ops), stacks=stacks_of(operation.origins, graph))


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


def body_of(
    nest: Nest,
    buffers: Mapping[str, Buffer],
    graph: Graph,
    taken: set[str],
    *,
    is_named: bool = True,
    in_order: bool = False,
) -> KernelBody:
    """A nest as a kernel with a name of its own, which is ``taken`` then."""
    names, scalars = arguments(nest.axes, nest.statements)
    return KernelBody(
        name_of(nest.origins if is_named else (), taken, graph.ops),
        nest.outer,
        nest.inner,
        nest.statements,
        tuple(buffers[name] for name in names),
        scalars,
        nest.device,
        nest.serial,
        nest.origins,
        stacks_of(nest.origins, graph),
        in_order=in_order,
    )


def arguments(
    axes: Sequence[Axis], statements: Sequence[Statement]
) -> tuple[tuple[str, ...], tuple[ex.Expr | str, ...]]:
    """What a kernel of ``statements`` over ``axes`` takes: buffers, those that it fills last, and symbols and parameters."""
    names: dict[str, None] = {}
    scalars: dict[ex.Expr | str, None] = {}
    own = {axis.symbol for axis in axes}
    for axis in axes:
        for symbol in sorted(ex.free_symbols(axis.size), key=lambda s: s.name):
            scalars[symbol] = None
    for index, _ in index_expressions(statements):
        for symbol in sorted(ex.free_symbols(index), key=lambda s: s.name):
            if symbol not in own and symbol.definition is None:
                scalars[symbol] = None
    for statement in statements:
        for node in walk(*values(statement)):
            if node.kind == "load":
                names[node.buffer] = None
            elif node.kind == "parameter":
                scalars[node.args[0]] = None
    for statement in statements:
        if isinstance(statement, Store):
            names[statement.buffer] = None
    return tuple(names), tuple(scalars)


def stacks_of(origins: Sequence[str], graph: Graph) -> tuple[str, ...]:
    """Where the user wrote these nodes."""
    return tuple(dict.fromkeys(graph.stacks[origin] for origin in origins if origin in graph.stacks))


def name_of(origins: Sequence[str], taken: set[str], ops: Mapping[str, str]) -> str:
    """``fused_`` and the names of the first operations that compute something, made unique; ``ops``: their names by node."""
    words = dict.fromkeys(ops.get(origin) or re.sub(r"(_\d+)+$", "", origin) for origin in origins)
    moving = moving_names()
    telling = [word for word in words if word not in moving] or list(words)
    text = re.sub(r"\W+", "_", "_".join(telling[:6])) or "kernel"
    base, number = f"fused_{text[:60].strip('_')}", 0
    while f"{base}_{number}" in taken:
        number += 1
    taken.add(f"{base}_{number}")
    return f"{base}_{number}"
