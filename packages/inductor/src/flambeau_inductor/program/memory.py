"""Which results take over memory that nobody needs any more.

In: a ``Schedule``. Out: the same steps, where a kernel's result that is written exactly where a dying intermediate was read
shares that intermediate's memory (``Buffer.storage``); and which memory waits for a later result of the same shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from itertools import accumulate
from typing import Any

from attrs import evolve

from .. import expr as ex
from ..devices import device_of
from ..ir.graph import Graph
from ..ir.kernel import KernelBody, Reduce, Store
from ..ir.layout import Buffer, Layout, Ref, strides_in_order
from ..ir.loops import Extern, Nested
from ..ir.scalar import Scalar, loads, walk
from ..ops.aten import aten_op
from ..schedule import LaunchStep, Schedule, Step
from ..schedule.nest import values
from ..schedule.steps import step_reads, step_writes


def may_alias(step: Extern) -> bool:
    """True when a result of the call can be a view of an argument. What bodies give has memory of its own."""
    return not isinstance(step.op, Nested) and aten_op(step.op).shares_memory


def pinned_buffers(graph: Graph, steps: tuple[Step, ...]) -> set[str]:
    """Buffers whose memory must not be given away: what the caller sees and what library calls may have made views of."""
    pinned = {item.buffer.name for item in graph.inputs if hasattr(item, "buffer")}
    pinned |= {constant.buffer.name for constant in graph.constants}
    pinned |= {output.buffer for output in graph.outputs if isinstance(output, Ref)}
    for step in steps:
        if isinstance(step, Extern) and (may_alias(step) or step.changed):
            pinned |= step_reads(step) | step_writes(step)
    return pinned


def share_memory(graph: Graph, schedule: Schedule) -> Schedule:
    """Rename the storage of results that can be written over a dying input of the same kernel."""
    last: dict[str, int] = {}
    for position, step in enumerate(schedule.steps):
        for name in step_reads(step) | step_writes(step):
            last[schedule.buffers[name].storage] = position
    pinned = {
        schedule.buffers[name].storage for name in pinned_buffers(graph, schedule.steps) if name in schedule.buffers
    }
    buffers = dict(schedule.buffers)
    steps: list[Step] = []
    for position, step in enumerate(schedule.steps):
        if isinstance(step, KernelBody) and not step.serial:
            for name, storage in _takeovers(step, position, last, pinned, buffers).items():
                # Later in-place writers of the result (a scatter into a copy, say) live where it lives.
                for other in [key for key, buffer in buffers.items() if buffer.storage == name]:
                    buffers[other] = evolve(buffers[other], storage=storage)
                last[storage] = max(last[storage], last.get(name, position))
                if name in pinned:
                    pinned.add(storage)
            if _moves_nothing(step, buffers):
                continue
        steps.append(step)
    fresh = tuple(
        evolve(s, buffers=tuple(buffers[b.name] for b in s.buffers)) if isinstance(s, KernelBody) else s for s in steps
    )
    return Schedule(fresh, buffers)


def _is_pointwise(body: KernelBody) -> bool:
    """Whether each point is come to once, by one thread."""
    return not body.inner or all(isinstance(s, Store) and s.level == "inner" for s in body.statements)


def _takeovers(
    body: KernelBody, position: int, last: Mapping[str, int], pinned: set[str], buffers: Mapping[str, Buffer]
) -> dict[str, str]:
    """Result -> the storage it may take, for one kernel."""
    reads: dict[str, set[ex.Expr]] = {}
    for node in loads(*(v for s in body.statements for v in values(s))):
        reads.setdefault(buffers[node.buffer].storage, set()).add(node.index)
    found: dict[str, str] = {}
    in_order, pointwise = device_of(body.device).kernels.in_order, _is_pointwise(body)
    for store in body.statements:
        if not isinstance(store, Store) or buffers[store.buffer].in_place:
            continue
        for storage, indices in reads.items():
            if (
                storage in pinned
                or storage in found.values()
                or last.get(storage) != position
                or indices != {store.index}
            ):
                continue
            if not in_order and not _depends(store, storage, buffers):
                continue
            if not in_order and not pointwise and not _is_read_before(body, store, storage, buffers):
                continue
            if same_memory(buffers[storage], buffers[store.buffer]):
                found[store.buffer] = storage
                break
    return found


def _is_read_before(body: KernelBody, store: Store, storage: str, buffers: Mapping[str, Buffer]) -> bool:
    """Whether everything else that reads ``storage`` is an earlier walk over the row, which all threads have ended before the store.

    They have where the store needs a result of the walk. A reduction that needs none of another is in the first walk, with any other such.
    """
    reduces = {s.name: s for s in body.statements if isinstance(s, Reduce)}
    needs = {s.name: _reduced(s.value) for s in reduces.values()}
    before = _reduced(store.value)
    pending = list(before)
    while pending:
        more = needs.get(pending.pop(), set()) - before
        before |= more
        pending += more
    if store.level != "inner" or store.mode != "set" or not before <= reduces.keys():
        return False
    place = next(n for n, s in enumerate(body.statements) if s is store)
    for number, s in enumerate(body.statements):
        if s is store or not _reads(s.value, storage, buffers):
            continue
        if not isinstance(s, Reduce) or number > place or not (s.name in before or not needs[s.name]):
            return False
    return any(not needs[name] for name in before)


def _reduced(value: Scalar) -> set[str]:
    return {node.args[0] for node in walk(value) if node.kind == "reduced"}


def _reads(value: Scalar, storage: str, buffers: Mapping[str, Buffer]) -> bool:
    return any(buffers[node.buffer].storage == storage for node in loads(value))


def _moves_nothing(body: KernelBody, buffers: Mapping[str, Buffer]) -> bool:
    """Whether every statement stores elements where they lie: a copy that took over the memory of what it copies."""
    for store in body.statements:
        if not isinstance(store, Store) or store.mode != "set" or store.value.kind != "load":
            return False
        source, target = buffers[store.value.buffer], buffers[store.buffer]
        if source.storage != target.storage or source.layout.dtype is not target.layout.dtype:
            return False
        if store.value.index != store.index:
            return False
    return True


def _depends(store: Store, storage: str, buffers: Mapping[str, Buffer]) -> bool:
    """Whether the stored value is computed from what it overwrites: out of order only that puts the read before the write."""
    return _reads(store.value, storage, buffers)


def hand_overs(schedule: Schedule, kept: set[str], outer: Set[str] = frozenset()) -> dict[str, str]:
    """Dying storage -> the later storage of the same shape that takes its memory on, where holding it does not raise the peak.

    ``kept`` are storages that stay to the end or whose memory is not ours to give, ``outer`` those that were there before (they do
    not count). Sizes count by their hints. Of several that begin or end together the first by name goes first: sets have no order, and
    a program must come out the same in every process.
    """
    buffers, steps = schedule.buffers, schedule.steps
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    made: set[str] = set()
    for position, step in enumerate(steps):
        for name in step_reads(step) | step_writes(step):
            storage = buffers[name].storage
            if storage not in outer:
                first.setdefault(storage, position)
                last[storage] = len(steps) if storage in kept else position
        if isinstance(step, LaunchStep):
            made |= {buffers[n].storage for n in step_writes(step) if first.get(buffers[n].storage) == position}
    changes = [0] * (len(steps) + 2)
    sizes = {storage: _bytes(buffers[storage]) for storage in first}
    for storage, position in first.items():
        changes[position] += sizes[storage]
        changes[last[storage] + 1] -= sizes[storage]
    use = list(accumulate(changes))
    peak = max(use)
    waiting: dict[tuple[Any, ...], list[str]] = {}
    for storage in sorted(made, key=lambda name: (first[name], name)):
        waiting.setdefault(memory_key(buffers[storage]), []).append(storage)
    found: dict[str, str] = {}
    for storage in sorted(made - kept, key=lambda name: (last[name], name)):
        same = waiting[memory_key(buffers[storage])]
        later = next((n for n in same if first[n] > last[storage]), None)
        if later is None:
            continue
        size, between = sizes[storage], range(last[storage] + 1, first[later])
        if all(use[at] + size <= peak for at in between):
            for at in between:
                use[at] += size
            found[storage] = later
            same.remove(later)
    return found


def memory_key(buffer: Buffer) -> tuple[Any, ...]:
    """What two buffers must agree in for one to use the other's memory as it is."""
    layout = buffer.layout
    return layout.dtype, layout.device, layout.sizes, layout.strides


def _bytes(buffer: Buffer) -> int:
    return ex.hint(buffer.layout.numel) * buffer.layout.dtype.itemsize


def same_memory(a: Buffer, b: Buffer) -> bool:
    """True when both take the same bytes, each as a dense array of the same elements (of any shape)."""
    x, y = a.layout, b.layout
    if memory_key(a) == memory_key(b):
        return True
    return (
        x.device == y.device and x.dtype is y.dtype and ex.known_eq(x.numel, y.numel) and _is_dense(x) and _is_dense(y)
    )


def _is_dense(layout: Layout) -> bool:
    """True when the elements are known to fill memory without gaps, in whatever order of dimensions."""
    order = sorted(range(len(layout.sizes)), key=lambda d: (-ex.hint(layout.strides[d]), d))
    dense = strides_in_order(layout.sizes, order)
    return all(ex.known_eq(a, b) or n is ex.ONE for a, b, n in zip(layout.strides, dense, layout.sizes, strict=True))
