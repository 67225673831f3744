"""Pointwise kernels that go row by row on a GPU, because much of what they compute is the same along a row.

In: a nest without inner axes. Out: the same nest, or one whose last axis is an inner one: a program then takes a row and holds what belongs to
it, where a flat kernel would divide the number of every point by the length of a row and load the row's values once for each.
"""

from __future__ import annotations

from attrs import evolve

from .. import expr as ex
from ..devices import device_of
from ..ir.kernel import Store
from ..ir.loops import Axis
from ..ir.scalar import loads
from .mapping import numel
from .nest import Nest, values

#: Rows of at least this many elements, so that starting one costs nothing; so many for each multiprocessor, so that all are busy.
_LONG, _ROWS = 8192, 4
#: Values of a row that are worth it: one is loaded as cheaply for every point.
_FEWEST = 2


def by_rows(nest: Nest) -> Nest:
    """``nest`` with its last axis inside, where that pays."""
    device = device_of(nest.device)
    if device.is_host or nest.inner or nest.serial or len(nest.outer) < 2:
        return nest
    *rows, along = nest.outer
    enough = _ROWS * device.facts(nest.device).multiprocessors
    if ex.hint(along.size) < _LONG or ex.hint(numel(tuple(rows))) < enough or not _is_plain(nest, along):
        return nest
    moved = tuple(evolve(statement, level="inner") for statement in nest.statements if isinstance(statement, Store))
    return evolve(nest, outer=tuple(rows), inner=(along,), statements=moved)


def _is_plain(nest: Nest, along: Axis) -> bool:
    """Whether every result is written in order along ``along``, and enough of what is read is the same along it and not everywhere."""
    outer = {axis.symbol for axis in nest.outer} - {along.symbol}
    for statement in nest.statements:
        if not isinstance(statement, Store) or statement.mode != "set":
            return False
        if ex.coefficient(statement.index, along.symbol) is not ex.ONE:
            return False
    read = loads(*(value for statement in nest.statements for value in values(statement)))
    symbols = [ex.free_symbols(node.index) for node in read]
    return sum(bool(found & outer) and along.symbol not in found for found in symbols) >= _FEWEST
