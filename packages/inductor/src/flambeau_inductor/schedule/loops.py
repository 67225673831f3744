"""The loops of a fused nest: split axes that divisions split, order them by stride, merge neighbours that run on.

In: a ``Nest``. Out: an equal nest with fewer divisions and fewer, longer axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from attrs import evolve

from .. import expr as ex
from ..expr import Expr, Symbol
from ..ir.kernel import ScanStep, Statement, Store
from ..ir.loops import Axis
from ..ir.scalar import walk
from .nest import Nest, rename, tidy, values


def index_expressions(statements: Iterable[Statement]) -> Iterator[tuple[Expr, bool]]:
    """Every index expression, with True for those of stores; loads and index values count, indirect ones included."""
    for statement in statements:
        if isinstance(statement, Store):
            yield statement.index, True
        for node in walk(*values(statement)):
            if node.kind in ("load", "index"):
                yield node.index, False


def improve(nest: Nest) -> Nest:
    """All three steps; a scan's inner axis is left alone, a serial scatter keeps its order."""
    nest = split_axes(nest)
    if not nest.serial:
        nest = order_axes(nest)
    return merge_axes(nest)


def split_axes(nest: Nest) -> Nest:
    """Replace an axis by two where ``axis // n`` or ``axis % n`` occurs and ``n`` divides its size."""
    for _ in range(8):
        found = _division(nest)
        if found is None:
            return nest
        axis, n = found
        high_size = ex.floor_div(axis.size, n)
        high = Axis(Symbol(f"{axis.symbol.name}_h", bound=high_size), high_size)
        low = Axis(Symbol(f"{axis.symbol.name}_l", bound=n), n)
        mapping: dict[Expr, Expr | int] = {axis.symbol: high.symbol * n + low.symbol}
        outer = tuple(part for a in nest.outer for part in ((high, low) if a is axis else (a,)))
        inner = tuple(part for a in nest.inner for part in ((high, low) if a is axis else (a,)))
        nest = tidy(evolve(nest, outer=outer, inner=inner, statements=rename(nest.statements, mapping)))
    return nest


def _division(nest: Nest) -> tuple[Axis, Expr] | None:
    scans = any(isinstance(s, ScanStep) for s in nest.statements)
    axes = {axis.symbol: axis for axis in (nest.outer if scans else nest.axes)}
    for index, _ in index_expressions(nest.statements):
        for node in ex.walk(index):
            if node.op not in ("floordiv", "mod"):
                continue
            divided, n = node.args
            for symbol in ex.free_symbols(divided):
                axis = axes.get(symbol)
                if axis is None or n.lo < 2 or not ex.free_symbols(n).isdisjoint(axes):
                    continue
                stride = ex.coefficient(divided, symbol)
                unit = _exact(n, stride) if stride is not None else None
                if (
                    unit is not None
                    and unit.lo >= 2
                    and _exact(axis.size, unit) is not None
                    and not ex.known_eq(axis.size, unit)
                ):
                    return axis, unit
    return None


def _exact(a: Expr, b: Expr) -> Expr | None:
    """``a / b`` when it is known to be a whole number."""
    if b is ex.ONE:
        return a
    if b.lo < 1 or ex.mod(a, b) is not ex.ZERO:
        return None
    return ex.floor_div(a, b)


def order_axes(nest: Nest) -> Nest:
    """Largest stride outermost, judged by the stores first, then by the loads."""
    outer = _by_stride(nest, nest.outer)
    inner = nest.inner if nest.ordered else _by_stride(nest, nest.inner)
    return nest if (outer, inner) == (nest.outer, nest.inner) else evolve(nest, outer=outer, inner=inner)


def _by_stride(nest: Nest, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    if len(axes) < 2:
        return axes
    strides: dict[Axis, list[int]] = {axis: [] for axis in axes}
    weights: list[int] = []
    for index, is_store in index_expressions(nest.statements):
        row = [ex.coefficient(index, axis.symbol) for axis in axes]
        if all(s is None or s is ex.ZERO for s in row):
            continue
        weights.append(2 if is_store else 1)
        for axis, stride in zip(axes, row, strict=True):
            strides[axis].append(0 if stride is None else abs(ex.hint(stride)))

    def before(a: Axis, b: Axis) -> int:
        votes = 0
        for weight, x, y in zip(weights, strides[a], strides[b], strict=True):
            if x and y and x != y:
                votes += weight if x > y else -weight
        return votes

    placed: list[Axis] = []
    for axis in axes:
        at = len(placed)
        while at > 0 and before(placed[at - 1], axis) < 0:
            at -= 1
        placed.insert(at, axis)
    return tuple(placed)


def merge_axes(nest: Nest) -> Nest:
    """Make one axis of neighbours ``a, b`` wherever every index moves by ``size(b)`` steps of ``b`` for one of ``a``."""
    scans = any(isinstance(s, ScanStep) for s in nest.statements)
    changed = True
    while changed:
        changed = False
        for level in ("outer", "inner"):
            axes: tuple[Axis, ...] = getattr(nest, level)
            if level == "inner" and scans:
                continue
            for n in range(len(axes) - 1):
                if _runs_on(nest, axes[n], axes[n + 1]):
                    nest, changed = _merged(nest, level, n), True
                    break
    return tidy(nest, keep_inner=scans)


def _runs_on(nest: Nest, high: Axis, low: Axis) -> bool:
    for index, _ in index_expressions(nest.statements):
        a, b = ex.coefficient(index, high.symbol), ex.coefficient(index, low.symbol)
        if a is None or b is None or not ex.known_eq(a, b * low.size):
            return False
    return True


def _merged(nest: Nest, level: str, n: int) -> Nest:
    axes: tuple[Axis, ...] = getattr(nest, level)
    high, low = axes[n], axes[n + 1]
    size = high.size * low.size
    both = Axis(Symbol(f"{high.symbol.name}_{low.symbol.name}", bound=size), size)
    # Where high * size(low) + low occurs it becomes the merged axis: substituting low by it and high by zero does that.
    mapping: dict[Expr, Expr | int] = {high.symbol: 0, low.symbol: both.symbol}
    statements = rename(nest.statements, mapping)
    kept = (*axes[:n], both, *axes[n + 2 :])
    if level == "outer":
        return evolve(nest, statements=statements, outer=kept)
    return evolve(nest, statements=statements, inner=kept)
