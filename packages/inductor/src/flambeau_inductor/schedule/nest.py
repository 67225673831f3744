"""Loop nests: what fusion works on, one per loop operation at first, then merged.

In: a loop operation. Out: a frozen ``Nest`` with the statements of a ``KernelBody``; axes of size one are gone, outer axes are
called ``x0, x1, …`` and inner ones ``r0, r1, …``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from attrs import evolve, frozen

from .. import expr as ex
from ..expr import Expr, Symbol
from ..ir.kernel import Reduce, ScanStep, Statement, Store
from ..ir.loops import Axis, Loop, Pointwise, Reduction, Scan, Scatter
from ..ir.scalar import Scalar, Transform, loads, op, reduced, substitution


@frozen
class Nest:
    """Statements over ``outer`` (parallel) and ``inner`` axes; ``members`` are positions of operations in the graph."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    statements: tuple[Statement, ...]
    members: tuple[int, ...]
    device: torch.device
    origins: tuple[str, ...] = ()
    serial: bool = False

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Outer axes, then inner ones."""
        return self.outer + self.inner

    @property
    def ordered(self) -> bool:
        """True when the inner axes' order matters (an argument reduction or a scan)."""
        return any(
            isinstance(s, ScanStep) or (isinstance(s, Reduce) and s.kind in ("argmax", "argmin"))
            for s in self.statements
        )


def values(statement: Statement) -> tuple[Scalar, ...]:
    """The scalars a statement evaluates, indirect positions of its store included."""
    if not isinstance(statement, Store):
        return (statement.value,)
    found = [statement.value]
    found += [s.definition for s in ex.free_symbols(statement.index) if s.definition is not None]
    return tuple(found)


def read_indices(nest: Nest) -> dict[str, set[Expr]]:
    """Buffer -> the index expressions at which the nest reads it."""
    found: dict[str, set[Expr]] = {}
    for node in loads(*(value for statement in nest.statements for value in values(statement))):
        found.setdefault(node.buffer, set()).add(node.index)
    return found


def stores(nest: Nest) -> dict[str, Store]:
    """Buffer -> the statement that fills it."""
    return {s.buffer: s for s in nest.statements if isinstance(s, Store)}


def rename(
    statements: Iterable[Statement], mapping: Mapping[Expr, Expr | int], level: str | None = None
) -> tuple[Statement, ...]:
    """The statements over other axes; ``level`` moves stores."""
    changed = substitution(mapping)
    return tuple(_renamed(statement, changed, level) for statement in statements)


def _renamed(statement: Statement, changed: Transform, level: str | None) -> Statement:
    value = changed.scalar(statement.value)
    if not isinstance(statement, Store):
        return statement if value is statement.value else evolve(statement, value=value)
    index, level = changed.expression(statement.index), level or statement.level
    if value is statement.value and index is statement.index and level == statement.level:
        return statement
    return evolve(statement, value=value, index=index, level=level)


def _converted(value: Scalar, dtype: torch.dtype) -> Scalar:
    return op("to_dtype", value, dtype=dtype)


def make_nest(position: int, operation: Loop) -> Nest:
    """The nest of one operation."""
    device = operation.out.layout.device
    at = operation.out.layout.index([a.symbol for a in operation.axes]) if not isinstance(operation, Scatter) else None
    outer: tuple[Axis, ...] = operation.axes
    inner: tuple[Axis, ...] = ()
    serial = False
    statements: tuple[Statement, ...]
    name, dtype = operation.out.name, operation.out.layout.dtype
    if isinstance(operation, Pointwise):
        assert at is not None
        statements = (Store(name, at, _converted(operation.value, dtype)),)
    elif isinstance(operation, Reduction):
        assert at is not None
        # The reduction of a tensor without dimensions is a loop over its one element.
        inner = operation.reduce_axes or (Axis(Symbol("r0", bound=ex.ONE), ex.ONE),)
        kind_dtype = torch.int64 if operation.kind in ("argmax", "argmin") else operation.value.dtype
        result = _converted(reduced(name, kind_dtype), dtype)
        statements = (Reduce(name, operation.kind, operation.value, kind_dtype), Store(name, at, result))
    elif isinstance(operation, Scan):
        assert at is not None
        outer = tuple(a for n, a in enumerate(operation.axes) if n != operation.along)
        inner = (operation.axes[operation.along],)
        result = _converted(reduced(name, operation.value.dtype), dtype)
        statements = (
            ScanStep(name, operation.kind, operation.value, operation.value.dtype),
            Store(name, at, result, "inner"),
        )
    else:
        serial = True
        value = _converted(operation.value, dtype)
        statements = (Store(name, operation.index, value, "outer", operation.mode),)
    nest = Nest(outer, inner, statements, (position,), device, operation.origins, serial)
    return tidy(nest, keep_inner=isinstance(operation, Scan))


def tidy(nest: Nest, keep_inner: bool = False) -> Nest:
    """Drop axes of size one and give the others their standard names."""
    mapping: dict[Expr, Expr | int] = {}
    outer = _standard(nest.outer, "x", mapping, False)
    inner = _standard(nest.inner, "r", mapping, keep_inner)
    if nest.inner and not inner:
        inner = (Axis(Symbol("r0", bound=ex.ONE), ex.ONE),)
    if all(old is new for old, new in mapping.items()) and len(inner) == len(nest.inner):
        return nest
    return evolve(nest, outer=outer, inner=inner, statements=rename(nest.statements, mapping))


def _standard(axes: tuple[Axis, ...], prefix: str, mapping: dict[Expr, Expr | int], keep: bool) -> tuple[Axis, ...]:
    kept: list[Axis] = []
    for axis in axes:
        if axis.size is ex.ONE and not keep:
            mapping[axis.symbol] = 0
            continue
        symbol = Symbol(f"{prefix}{len(kept)}", bound=axis.size)
        mapping[axis.symbol] = symbol
        kept.append(Axis(symbol, axis.size))
    return tuple(kept)
