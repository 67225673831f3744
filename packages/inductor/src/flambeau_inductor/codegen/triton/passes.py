"""In which walk over the reduction space each statement of a kernel happens.

In: the statements of a ``KernelBody``. Out: a stage for each. A looped kernel walks its ``r`` tile once per stage; an inner
statement of stage ``s`` runs in walk ``s``, an outer one just before it. A statement comes after the walks that compute the
reductions it uses, and never overtakes a statement that touches the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import product
from ...ir.scalar import loads, walk
from ..errors import UnsupportedKernel
from .pairs import Pair, find_pairs


@frozen
class Plan:
    """``stages[i]`` belongs to statement ``i``; ``last_use`` is the last stage that loads a buffer along the row.

    ``deferred`` are stores over memory whose old contents a later statement of the kernel still reads: they are written at the
    end of their stage. ``pairs`` are reductions done in one walk, by the positions of both.
    """

    stages: tuple[int, ...]
    last_use: dict[str, int]
    deferred: frozenset[int] = frozenset()
    pairs: Mapping[int, Pair] = field(factory=dict)

    @property
    def count(self) -> int:
        """How many stages there are, the one behind the last walk included."""
        return max(self.stages, default=0) + 1


def is_inner(statement: Statement) -> bool:
    """Whether the statement runs for every point of the inner space."""
    return not (isinstance(statement, Store) and statement.level == "outer")


def plan(body: KernelBody, paired: bool = True) -> Plan:
    """Stages for the statements of ``body``; without pairs where a row is kept and another walk over it costs nothing.

    Raises UnsupportedKernel where a kernel reads back what it wrote elsewhere.
    """
    storage = {buffer.name: buffer.storage for buffer in body.buffers}
    ready: dict[str, int] = {}
    stages: list[int] = []
    last_use: dict[str, int] = {}
    paired = paired and len(body.inner) > 0
    pairs = find_pairs(body.statements, product([axis.size for axis in body.inner])) if paired else {}
    for number, statement in enumerate(body.statements):
        known = {body.statements[pairs[number].first].name} if _is_second(pairs, number) else set()  # type: ignore[union-attr]
        used = {r.args[0] for r in walk(statement.value) if r.kind == "reduced"}
        stage = max((ready[name] for name in used - known), default=0)
        for earlier_number, earlier in enumerate(body.statements[:number]):
            if _conflict(earlier, statement, storage):
                settled = stages[earlier_number] + (is_inner(earlier) and not is_inner(statement))
                stage = max(stage, settled)
        if _is_second(pairs, number):
            if stage <= stages[pairs[number].first]:
                stage = stages[pairs[number].first]
            else:
                stage = max(stage, stages[pairs[number].first] + 1)
                del pairs[pairs[number].first], pairs[number]
        stages.append(stage)
        if isinstance(statement, Reduce):
            ready[statement.name] = stage + 1
        elif isinstance(statement, ScanStep):
            ready[statement.name] = stage
    deferred = _after_old_readers(body, storage, stages)
    for stage, statement in zip(stages, body.statements, strict=True):
        if is_inner(statement):
            for node in loads(statement.value):
                last_use[node.buffer] = max(last_use.get(node.buffer, 0), stage)
    _refuse_read_back(body)
    if any(stages[pair.first] != stages[pair.second] for pair in pairs.values()):
        raise AssertionError("a store was moved into a pair of reductions")
    return Plan(tuple(stages), last_use, deferred, pairs)


def _is_second(pairs: Mapping[int, Pair], number: int) -> bool:
    return number in pairs and pairs[number].second == number


def _after_old_readers(body: KernelBody, storage: dict[str, str], stages: list[int]) -> frozenset[int]:
    """Move stores behind every read of what they overwrite (a read by another buffer's name means the old contents)."""
    deferred: set[int] = set()
    moved: set[str] = set()
    for number, statement in enumerate(body.statements):
        if not isinstance(statement, Store):
            continue
        target = storage[statement.buffer]
        for later in range(number + 1, len(body.statements)):
            reader = body.statements[later]
            names = {n.buffer for n in loads(reader.value) if storage[n.buffer] == target}
            if names - {statement.buffer}:
                moved.add(target)
                stages[number] = max(stages[number], stages[later] + (is_inner(reader) and not is_inner(statement)))
        if target in moved:
            deferred.add(number)
    return frozenset(deferred)


def _written(statement: Statement, storage: dict[str, str]) -> str | None:
    return storage[statement.buffer] if isinstance(statement, Store) else None


def _conflict(earlier: Statement, later: Statement, storage: dict[str, str]) -> bool:
    wrote, writes = _written(earlier, storage), _written(later, storage)
    if wrote is not None and wrote == writes:
        return True
    if wrote is not None and any(storage[n.buffer] == wrote for n in loads(later.value)):
        return True
    return writes is not None and any(storage[n.buffer] == writes for n in loads(earlier.value))


def _refuse_read_back(body: KernelBody) -> None:
    """Another thread may have written what a load of a buffer stored in this kernel reads, unless it is the same element."""
    stored: dict[str, set[object]] = {}
    for statement in body.statements:
        for node in loads(statement.value):
            known = stored.get(node.buffer)
            if known is not None and node.index not in known:
                raise UnsupportedKernel(f"{body.name} reads {node.buffer} at another place than it wrote")
        if isinstance(statement, Store):
            plain = statement.mode == "set"
            stored.setdefault(statement.buffer, set()).add(statement.index if plain else None)
