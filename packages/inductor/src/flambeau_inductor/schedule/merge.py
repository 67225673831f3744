"""Merge two loop nests into one, or say why that cannot be.

In: a nest ``first`` and a nest ``second`` that comes after it. Out: one nest computing both, or the reason as text. The second reads what the
first writes only at the very point where it is written: such reads become the value itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import evolve

from .. import expr as ex
from ..devices import device_of
from ..expr import Expr
from ..ir.kernel import Reduce, ScanStep, Statement, Store
from ..ir.layout import Buffer
from ..ir.loops import SHORT_ROW, Axis
from ..ir.scalar import Scalar, has_function, index_value, loads, op, transform, walk
from .mapping import candidates, numel
from .nest import Nest, read_indices, rename, stores, values

#: A fused kernel touches at most this many buffers, has at most this many statements and does the work of at most this many loops.
MAX_FUSION_UNIQUE_IO_BUFFERS, MOST_STATEMENTS, MAX_FUSION_SIZE = 32, 48, 64
#: Places of an image and of a weight that a window has at least: 3 x 3.
LEAST_PLACES = 9


def shared_pairs(first: Nest, second: Nest) -> list[tuple[Expr, Expr]]:
    """Index expressions (over first, over second) that name one element of a common buffer; dependencies come first."""
    written, reads_first, reads_second = stores(first), read_indices(first), read_indices(second)
    pairs = [
        (written[name].index, index)
        for name, indices in sorted(reads_second.items())
        if name in written
        for index in sorted(indices, key=lambda e: e.key)[:2]
    ]
    for name in sorted(set(reads_first) & set(reads_second)):
        if len(reads_first[name]) == 1 and len(reads_second[name]) == 1:
            pairs.append((next(iter(reads_first[name])), next(iter(reads_second[name]))))
    return pairs[:6]


def merge(
    first: Nest,
    second: Nest,
    buffers: Mapping[str, Buffer],
    max_fusion_unique_io_buffers: int = MAX_FUSION_UNIQUE_IO_BUFFERS,
    max_fusion_size: int = MAX_FUSION_SIZE,
) -> Nest | str:
    """One nest that does ``first`` then ``second`` at every point; where that would not give the same results, the reason."""
    if first.device != second.device:
        return f"they run on {first.device} and {second.device}"
    if first.serial or second.serial:
        return "a scatter takes its points in turn"
    if len(first.statements) + len(second.statements) > MOST_STATEMENTS:
        return f"more than {MOST_STATEMENTS} statements"
    if len(first.members) + len(second.members) > max_fusion_size:
        return f"more than {max_fusion_size} loops"
    if len(_touched(first) | _touched(second)) > max_fusion_unique_io_buffers:
        return f"more than {max_fusion_unique_io_buffers} buffers"
    if _has_windows(first, second):
        return "a reduction would compute the windows of a convolution in each of its walks"
    if _scans_by_elements(first, second):
        return "a scan along rows goes element by element, and the other computes what has a vector form"
    refused = "no way is found to match their points"
    for a, b, outer, inner in _aligned(first, second):
        joined = _join(a, b, buffers)
        if isinstance(joined, str):
            refused = joined
        else:
            return Nest(
                outer,
                inner,
                joined,
                first.members + second.members,
                first.device,
                _union(first.origins, second.origins),
            )
    return refused


def _scans_rows(nest: Nest) -> bool:
    """Whether each element follows from the one that lies before it in memory, and the device computes them one by one."""
    if not device_of(nest.device).kernels.scans_one_by_one or not any(isinstance(s, ScanStep) for s in nest.statements):
        return False
    return any(
        ex.coefficient(s.index, nest.inner[-1].symbol) is ex.ONE for s in nest.statements if isinstance(s, Store)
    )


def _scans_by_elements(first: Nest, second: Nest) -> bool:
    """Whether one of them scans rows, and what the other computes would be computed element by element too: rows are short, or they are gone over again
    after the scan."""
    for scan, other in ((first, second), (second, first)):
        if not (_scans_rows(scan) and _is_dear(other)):
            continue
        passes = _reduces(scan) or (scan is first and _reduces(other))
        if passes or ex.hint(scan.inner[-1].size) < SHORT_ROW:
            return True
    return False


def _has_windows(first: Nest, second: Nest) -> bool:
    """Whether one of them computes windows of a convolution, and only the other one has inner axes, on a device whose kernels are compiled one by one: such a kernel takes
    seconds to compile, and its rows are no multiples of a block."""
    if not device_of(first.device).queues or bool(first.inner) == bool(second.inner):
        return False
    flat = second if first.inner else first
    return sum(len(places) >= LEAST_PLACES for places in read_indices(flat).values()) > 1


def _reduces(nest: Nest) -> bool:
    return any(isinstance(s, Reduce) for s in nest.statements)


def _is_dear(nest: Nest) -> bool:
    return not _scans_rows(nest) and any(has_function(value) for s in nest.statements for value in values(s))


def _touched(nest: Nest) -> set[str]:
    return set(read_indices(nest)) | set(stores(nest))


def _union(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(a + b))


Aligned = tuple[tuple[Statement, ...], tuple[Statement, ...], tuple[Axis, ...], tuple[Axis, ...]]


def _aligned(first: Nest, second: Nest) -> Iterator[Aligned]:
    """Both nests' statements over one space, for each way found to match their points."""
    pairs = shared_pairs(first, second)
    swapped = [(b, a) for a, b in pairs]
    if first.inner and second.inner:
        yield from _both_inner(first, second, swapped)
    elif first.inner:
        for moved in _into(second, first, swapped):
            yield first.statements, moved, first.outer, first.inner
    elif second.inner:
        for moved in _into(first, second, pairs):
            yield moved, second.statements, second.outer, second.inner
    else:
        for mapping in candidates(second.outer, first.outer, swapped):
            yield first.statements, rename(second.statements, mapping), first.outer, ()


def _into(flat: Nest, deep: Nest, pairs: list[tuple[Expr, Expr]]) -> Iterator[tuple[Statement, ...]]:
    """The statements of a pointwise nest at the outer or the inner level of a nest with inner axes."""
    for mapping in candidates(flat.outer, deep.outer, pairs):
        yield rename(flat.statements, mapping, "outer")
    for mapping in candidates(flat.outer, deep.axes, pairs):
        yield rename(flat.statements, mapping, "inner")


def _both_inner(first: Nest, second: Nest, swapped: list[tuple[Expr, Expr]]) -> Iterator[Aligned]:
    if (first.ordered or second.ordered) and len(first.inner) != len(second.inner):
        return
    outer_pairs = [(_without(a, second.inner), _without(b, first.inner)) for a, b in swapped]
    inner_pairs = [(_without(a, second.outer), _without(b, first.outer)) for a, b in swapped]
    for inner in candidates(second.inner, first.inner, inner_pairs):
        if second.ordered and [inner[a.symbol] for a in second.inner] != [b.symbol for b in first.inner]:
            continue
        for outer in candidates(second.outer, first.outer, outer_pairs):
            mapping = {**outer, **inner}
            yield first.statements, rename(second.statements, mapping), first.outer, first.inner


def _without(index: Expr, axes: tuple[Axis, ...]) -> Expr:
    return ex.substitute(index, {axis.symbol: 0 for axis in axes})


def _join(
    a: tuple[Statement, ...], b: tuple[Statement, ...], buffers: Mapping[str, Buffer]
) -> tuple[Statement, ...] | str:
    """``a`` then ``b`` with reads of a's stores replaced by the values; where one has to wait for all of the other, the reason."""
    written = {s.buffer: s for s in a if isinstance(s, Store)}
    legal = True

    def value_of(node: Scalar) -> Scalar | None:
        nonlocal legal
        if node.kind != "load" or node.buffer not in written:
            return None
        store = written[node.buffer]
        if store.index is not node.index or store.mode != "set":
            legal = False
            return None
        return op("to_dtype", store.value, dtype=node.dtype)

    moved: list[Statement] = []
    for statement in b:
        moved.append(_replace(statement, value_of))
        if not legal:
            return "a result is read at another point than the one where it is written"
    if not _memory_safe(a, tuple(moved), buffers):
        return "memory that one overwrites is read by the other at another point"
    if not _levels_hold(a, tuple(moved)):
        return "a running value is needed after its pass over the axis"
    return a + tuple(moved)


def _replace(statement: Statement, replace: Callable[[Scalar], Scalar | None]) -> Statement:
    value = transform(statement.value, replace)
    if not isinstance(statement, Store):
        return evolve(statement, value=value)
    index = statement.index
    if any(s.definition is not None for s in ex.free_symbols(index)):
        index = transform(index_value(index), replace).args[0]
    return evolve(statement, value=value, index=index)


def _memory_safe(a: tuple[Statement, ...], b: tuple[Statement, ...], buffers: Mapping[str, Buffer]) -> bool:
    """Reads of memory that the other half overwrites in place happen at the point of the overwrite only."""
    overwritten = {
        buffers[s.buffer].storage: s.index for s in a + b if isinstance(s, Store) and buffers[s.buffer].in_place
    }
    if not overwritten:
        return True
    for node in loads(*(value for s in a + b for value in values(s))):
        buffer = buffers.get(node.buffer)
        where = overwritten.get(buffer.storage) if buffer is not None else None
        if where is not None and where is not node.index:
            return False
    others = [s for s in a + b if isinstance(s, Store) and buffers[s.buffer].storage in overwritten]
    return len({buffers[s.buffer].storage for s in others}) == len(others)


def _levels_hold(a: tuple[Statement, ...], b: tuple[Statement, ...]) -> bool:
    """No outer statement uses a running (scan) value, which exists at the inner level only."""
    scans = {s.name for s in a + b if isinstance(s, ScanStep)}
    if not scans:
        return True
    if any(isinstance(s, Reduce) for s in a + b):
        # A reduction ends a pass over the inner axes; a running value does not outlive its own.
        return False
    for statement in b:
        outer = isinstance(statement, Store) and statement.level == "outer"
        uses = any(
            node.kind == "reduced" and node.args[0] in scans for value in values(statement) for node in walk(value)
        )
        if uses and (outer or isinstance(statement, Reduce | ScanStep)):
            return False
    return True


def too_serial(nest: Nest) -> bool:
    """True when few parallel points share a lot of inner work and something besides one reduction needs them in step."""
    if not nest.inner:
        return False
    points, work = ex.hint(numel(nest.outer)), ex.hint(numel(nest.inner))
    return points < 8 and work > 32768
