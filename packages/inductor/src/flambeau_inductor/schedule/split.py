"""Split reductions that have few results and much to reduce, so that every core or multiprocessor has work.

In: a graph. Out: the same, where some reductions are two over a buffer of partial results: the first runs over
``(chunk,) + axes`` in parallel, the second adds the chunks up. No atomics: the result does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from .. import expr as ex
from ..devices import Reduced, device_of
from ..expr import Expr, Symbol
from ..ir.graph import Graph
from ..ir.layout import Buffer, Layout
from ..ir.loops import Axis, Operation, Reduction
from ..ir.scalar import Scalar, constant, index_value, load, loads, masked, op, substitute
from ..ops.dtypes import element_type
from .mapping import numel

#: Fewer elements for each result than this are worth a second kernel on no device.
FEWEST = 1024


_IDENTITY: dict[str, Callable[[Scalar], Scalar]] = {
    "sum": lambda v: constant(0, v.dtype),
    "xor_sum": lambda v: constant(0, v.dtype),
    "prod": lambda v: constant(1, v.dtype),
    "any": lambda v: constant(False, v.dtype),
    "all": lambda v: constant(True, v.dtype),
    "max": lambda v: constant(element_type(v.dtype).lowest, v.dtype),
    "min": lambda v: constant(element_type(v.dtype).highest, v.dtype),
}


def split_reductions(graph: Graph) -> Graph:
    """``graph`` and its bodies with their reductions split where that pays."""
    buffers = dict(graph.buffers)
    operations: list[Operation] = []

    def fresh() -> str:
        return f"partial{len(buffers)}"

    for operation in graph.operations:
        halves = split_reduction(operation, fresh) if isinstance(operation, Reduction) else None
        if halves is None:
            operations.append(operation)
        else:
            buffers[halves[0].out.name] = halves[0].out
            operations.extend(halves)
    bodies = {name: split_reductions(body) for name, body in graph.bodies.items()}
    return evolve(graph, operations=tuple(operations), buffers=buffers, bodies=bodies)


def split_reduction(operation: Reduction, fresh: Callable[[], str]) -> tuple[Reduction, Reduction] | None:
    """Two reductions equal to ``operation``, or None where one is as good; ``fresh`` names the buffer between them."""
    if operation.kind not in _IDENTITY:
        return None
    wanted = _wanted_parts(operation)
    if wanted < 2:
        return None
    axes = tuple(axis for axis in operation.reduce_axes if axis.size is not ex.ONE)
    dropped: dict[Expr, Expr | int] = {axis.symbol: 0 for axis in operation.reduce_axes if axis.size is ex.ONE}
    value = substitute(operation.value, dropped) if dropped else operation.value
    sizes = [ex.hint(axis.size) for axis in axes]
    at = next((n for n, size in enumerate(sizes) if size >= wanted // 2), sizes.index(max(sizes)))
    first, others = axes[at], axes[:at] + axes[at + 1 :]
    if others and wanted // 2 <= sizes[at] <= 4 * wanted:
        return _two(operation, value, first, others, fresh())
    count = _parts(first.size, wanted)
    even = count is not None
    if count is None:
        count = min(wanted, max(sizes[at], 1))
    length = ex.floor_div(first.size if even else first.size + (count - 1), ex.Int(count))
    chunk = Axis(Symbol("chunk", bound=ex.Int(count)), ex.Int(count))
    rest = Axis(Symbol("within", bound=length), length)
    position = chunk.symbol * length + rest.symbol
    value = substitute(value, {first.symbol: position})
    if not even:
        inside = op("lt", index_value(position), index_value(first.size))
        value = masked(inside, value, _IDENTITY[operation.kind](value))
    return _two(operation, value, chunk, (*axes[:at], rest, *axes[at + 1 :]), fresh())


def _wanted_parts(operation: Reduction) -> int:
    """How many partial results there should be for each result; 1 for none."""
    place = operation.out.layout.device
    results, work = ex.hint(numel(operation.axes)), ex.hint(numel(operation.reduce_axes))
    if work < FEWEST:
        return 1
    reduced = Reduced(results, work, _runs_along_results(operation), _bytes_read(operation))
    return device_of(place).parts(place, reduced)


def _runs_along_results(operation: Reduction) -> bool:
    """Whether neighbours in memory belong to different results; loads that vary along one side only do not count."""
    votes = 0
    outer = {axis.symbol for axis in operation.axes if axis.size is not ex.ONE}
    inner = {axis.symbol for axis in operation.reduce_axes if axis.size is not ex.ONE}
    for node in loads(operation.value):
        symbols = ex.free_symbols(node.index)
        if symbols & outer and symbols & inner:
            unit = {s for s in symbols if ex.coefficient(node.index, s) is ex.ONE}
            votes += bool(unit & outer) - bool(unit & inner)
    return votes > 0


def _bytes_read(operation: Reduction) -> int:
    sizes = {axis.symbol: ex.hint(axis.size) for axis in operation.axes + operation.reduce_axes}
    total = 0
    for node in dict.fromkeys(loads(operation.value)):
        points = 1
        for symbol in ex.free_symbols(node.index):
            points *= sizes.get(symbol, 1)
        total += points * node.dtype.itemsize
    return total


def _parts(size: Expr, wanted: int) -> int | None:
    """The divisor of a size that is nearest to ``wanted``, between a half and the double of it."""
    if not size.is_int:
        return None
    n = int(size)
    found = [p for p in range(max(wanted // 2, 2), min(2 * wanted, n) + 1) if n % p == 0]
    return min(found, key=lambda p: (abs(p - wanted), p), default=None)


def _two(
    operation: Reduction, value: Scalar, chunk: Axis, rest: tuple[Axis, ...], name: str
) -> tuple[Reduction, Reduction]:
    layout = operation.out.layout
    sizes = (chunk.size, *(axis.size for axis in operation.axes))
    partial = Buffer(name, Layout.contiguous(sizes, value.dtype, layout.device))
    first = evolve(operation, out=partial, axes=(chunk, *operation.axes), reduce_axes=rest, value=value)
    at = partial.layout.index([chunk.symbol, *(axis.symbol for axis in operation.axes)])
    second = evolve(operation, reduce_axes=(chunk,), value=load(name, at, value.dtype))
    return first, second
