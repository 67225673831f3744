"""Fusion: which loop nests become one kernel.

In: the operations of a graph in program order. Out: groups in an order that works, each a merged ``Nest`` or one library call.
Each operation in turn joins the group that saves most memory traffic (bytes that need not be read or written again), if the two
merge and no path through a third group would become a cycle.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from .. import expr as ex
from ..effects import checks, draws, may_fail
from ..ir.layout import Buffer
from ..ir.loops import Assert, Extern, Operation, Pointwise, ReadItem, Reduction, Scan, Scatter, Template, refs, written
from ..ir.scalar import Scalar, walk
from ..log import FUSION, Text, logger
from .merge import MAX_FUSION_SIZE, MAX_FUSION_UNIQUE_IO_BUFFERS, merge, too_serial
from .nest import Nest, make_nest, read_indices, stores, values

#: How many groups that share a read (without a dependency) are tried, latest first.
NEIGHBOURS = 6
#: Two kernels that need nothing from each other stay apart where both move so many bytes, of which they have at most one part in so many in common:
#: one launch costs less than what they read and write being in memory at the same time.
LARGE, SHARED = 8 << 20, 64


@define(eq=False)
class Group:
    """A kernel in the making (``nest``) or a single other operation; ``ancestors`` are group numbers as bits. ``checks``: nobody reads
    what it computes, it is there for what it may raise. ``fails``: it may raise. ``overwrites``: it writes over what was there before."""

    number: int
    nest: Nest | None
    operation: Operation | None
    ancestors: int
    first: int
    reads: set[str] = field(factory=set)
    writes: set[str] = field(factory=set)
    parents: int = 0
    checks: bool = False
    fails: bool = False
    overwrites: bool = False


@frozen
class Note:
    """What became of the operation at ``position``: ``what`` ("joins", "starts", …) ``group``, and why."""

    position: int
    what: str
    group: int
    reason: str = ""


def operation_reads(operation: Operation) -> set[str]:
    """Buffers that a library call, template, item read or assertion reads."""
    if isinstance(operation, Extern):
        return {r.buffer for r in refs((operation.args, operation.kwargs))}
    if isinstance(operation, Template):
        return set(operation.reads)
    return {operation.source.buffer} if isinstance(operation, ReadItem) else set()


class Fuser:
    """The greedy pass; ``run`` gives the groups in a valid order."""

    def __init__(
        self,
        operations: Sequence[Operation],
        buffers: Mapping[str, Buffer],
        enabled: bool = True,
        max_fusion_unique_io_buffers: int = MAX_FUSION_UNIQUE_IO_BUFFERS,
        max_fusion_size: int = MAX_FUSION_SIZE,
    ) -> None:
        self.operations = operations
        self.buffers = buffers
        self.enabled = enabled
        self.max_fusion_unique_io_buffers = max_fusion_unique_io_buffers
        self.max_fusion_size = max_fusion_size
        self.groups: list[Group] = []
        self.writer: dict[str, Group] = {}
        self.readers: dict[str, list[Group]] = {}
        self.symbols: dict[ex.Expr | str, Group] = {}
        self.last_draw: Group | None = None
        #: The groups that may raise, as bits.
        self.failing = 0
        self.storage_users: dict[str, list[Group]] = {}
        self.notes: list[Note] = []

    def run(self) -> list[Group]:
        """Fuse, then order the groups so that each comes after what it needs, as early as program order says."""
        for position, operation in enumerate(self.operations):
            if isinstance(operation, Pointwise | Reduction | Scan | Scatter):
                self._add_loop(position, make_nest(position, operation), operation)
            else:
                self._add_single(position, operation)
        logger.debug(FUSION, artifact="fusion", text=Text(self._text))
        return self._ordered()

    def _text(self) -> str:
        """The notes, one a line, each with the operation's result and the ops that it came from."""
        lines = []
        for note in self.notes:
            operation = self.operations[note.position]
            results = ", ".join(out.name for out in written(operation)) or type(operation).__name__.lower()
            origins = f" ({', '.join(operation.origins)})" if operation.origins else ""
            because = f": {note.reason}" if note.reason else ""
            lines.append(f"{results}{origins} {note.what} group {note.group}{because}")
        return "\n".join(lines) + "\n"

    def _add_single(self, position: int, operation: Operation) -> None:
        group = Group(len(self.groups), None, operation, 0, position)
        group.reads = operation_reads(operation)
        group.writes = {out.name for out in written(operation)}
        needs = self._needs(group.reads, group.writes, _symbols_of(operation))
        self._note_effects(group, may_fail(operation), False)
        if isinstance(operation, Extern) and draws(operation.op):
            # Draws advance one generator: they keep the order of the program.
            needs |= 0 if self.last_draw is None else 1 << self.last_draw.number
            self.last_draw = group
        self._insert(group, needs)
        self.notes.append(Note(position, "is alone in", group.number, "not a loop"))
        if isinstance(operation, Extern):
            for symbol, _, _ in operation.binds:
                self.symbols[symbol] = group
        elif isinstance(operation, ReadItem):
            self.symbols[operation.name] = group
            if operation.symbol is not None:
                self.symbols[operation.symbol] = group

    def _add_loop(self, position: int, nest: Nest, operation: Operation) -> None:
        reads, writes = set(read_indices(nest)), set(stores(nest))
        fails, overwrites = may_fail(operation), any(self.buffers[name].in_place for name in writes)
        needs = self._needs(reads, writes, _nest_symbols(nest))
        candidates = [] if checks(operation) else self._candidates(reads, writes)
        for candidate in candidates:
            if candidate.checks or (fails and candidate.overwrites) or (overwrites and candidate.fails):
                self.notes.append(
                    Note(position, "is refused by", candidate.number, "what may raise comes before writes")
                )
                continue
            joined = self._joined(candidate, nest, needs)
            if isinstance(joined, str):
                self.notes.append(Note(position, "is refused by", candidate.number, joined))
                continue
            self._join(candidate, joined, reads, writes, needs)
            self._note_effects(candidate, fails, overwrites)
            self.notes.append(Note(position, "joins", candidate.number))
            return
        group = Group(len(self.groups), nest, None, 0, position, reads, writes, checks=checks(operation))
        self._note_effects(group, fails, overwrites)
        why = (
            "" if candidates else "it reads nothing that a loop before it touches" if self.enabled else "fusion is off"
        )
        self.notes.append(Note(position, "starts", group.number, why))
        self._insert(group, needs)

    def _note_effects(self, group: Group, fails: bool, overwrites: bool) -> None:
        group.fails |= fails
        group.overwrites |= overwrites
        self.failing |= group.fails << group.number

    def _joined(self, group: Group, nest: Nest, needs: int) -> Nest | str:
        """The nest of ``group`` with ``nest`` at its end, or why that is not done."""
        between = [n for n in _bits(needs) if n != group.number and (self.groups[n].ancestors >> group.number) & 1]
        if between:
            return f"group {between[0]} has to run in between"
        assert group.nest is not None
        joined = merge(group.nest, nest, self.buffers, self.max_fusion_unique_io_buffers, self.max_fusion_size)
        if not isinstance(joined, str) and too_serial(joined) and not too_serial(group.nest):
            return "few points would do a lot of work in turn"
        return joined

    def _candidates(self, reads: set[str], writes: set[str]) -> list[Group]:
        """Groups worth merging with, the most bytes saved first."""
        if not self.enabled:
            return []
        score: dict[int, int] = {}
        makers: set[int] = set()
        for name in reads:
            size = self._bytes(name)
            writer = self.writer.get(name)
            if writer is not None and writer.nest is not None:
                makers.add(writer.number)
                score[writer.number] = score.get(writer.number, 0) + 2 * size
            for group in self.readers.get(name, [])[-NEIGHBOURS:]:
                if group.nest is not None and group is not writer:
                    score[group.number] = score.get(group.number, 0) + size
        own = self._traffic(reads | writes)
        best = sorted(
            (n for n in score if n in makers or self._shares_enough(score[n], own, self.groups[n])),
            key=lambda n: (-score[n], -n),
        )
        return [self.groups[n] for n in best][: 2 * NEIGHBOURS]

    def _shares_enough(self, common: int, own: int, group: Group) -> bool:
        """Whether a kernel that moves ``own`` bytes has enough in common with ``group``, which it does not depend on, to be with it in memory."""
        if own < LARGE or common * SHARED >= own:
            return True
        traffic = self._traffic(group.reads | group.writes)
        return traffic < LARGE or common * SHARED >= traffic

    def _traffic(self, names: set[str]) -> int:
        return sum(map(self._bytes, names))

    def _bytes(self, name: str) -> int:
        layout = self.buffers[name].layout
        return ex.hint(layout.numel) * layout.dtype.itemsize

    def _needs(self, reads: set[str], writes: set[str], symbols: frozenset[ex.Expr | str]) -> int:
        """Group numbers that must run before: writers of what is read, users of memory that is overwritten, binders."""
        needs = 0
        for name in reads:
            if name in self.writer:
                needs |= 1 << self.writer[name].number
        for name in writes:
            if self.buffers[name].in_place:
                # An input keeps its contents where a check fails: eager, which comes to it first, finds them.
                needs |= self.failing
                for group in self.storage_users.get(self.buffers[name].storage, ()):
                    needs |= 1 << group.number
        for symbol in symbols:
            if symbol in self.symbols:
                needs |= 1 << self.symbols[symbol].number
        return needs

    def _insert(self, group: Group, needs: int) -> None:
        self.groups.append(group)
        self._register(group, group.reads, group.writes)
        self._depend(group, needs)

    def _join(self, group: Group, nest: Nest, reads: set[str], writes: set[str], needs: int) -> None:
        group.nest = nest
        group.reads |= reads
        group.writes |= writes
        self._register(group, reads, writes)
        before = group.ancestors
        self._depend(group, needs & ~(1 << group.number))
        gained = group.ancestors & ~before
        if gained:
            for other in self.groups:
                if (other.ancestors >> group.number) & 1:
                    other.ancestors |= gained

    def _register(self, group: Group, reads: set[str], writes: set[str]) -> None:
        for name in writes:
            self.writer[name] = group
        for name in reads:
            users = self.readers.setdefault(name, [])
            if group not in users[-NEIGHBOURS:]:
                users.append(group)
        for name in reads | writes:
            users = self.storage_users.setdefault(self.buffers[name].storage, [])
            if group not in users:
                users.append(group)

    def _depend(self, group: Group, needs: int) -> None:
        group.parents |= needs
        for number in _bits(needs):
            group.ancestors |= (1 << number) | self.groups[number].ancestors

    def _ordered(self) -> list[Group]:
        """Topological order; among the ready, the group whose first operation came first."""
        waiting = {g.number: g.parents.bit_count() for g in self.groups}
        children: dict[int, list[int]] = {}
        for group in self.groups:
            for parent in _bits(group.parents):
                children.setdefault(parent, []).append(group.number)
        ready = [(g.first, g.number) for g in self.groups if not waiting[g.number]]
        heapq.heapify(ready)
        order: list[Group] = []
        while ready:
            _, number = heapq.heappop(ready)
            order.append(self.groups[number])
            for child in children.get(number, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    heapq.heappush(ready, (self.groups[child].first, child))
        if len(order) != len(self.groups):
            raise AssertionError("fusion made a cycle")
        return order


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _symbols_of(operation: Operation) -> frozenset[ex.Expr | str]:
    found: set[ex.Expr | str] = set()

    def visit(part: object) -> None:
        if isinstance(part, ex.Expr):
            found.update(ex.free_symbols(part))
        elif isinstance(part, Scalar):
            found.update(node.args[0] for node in walk(part) if node.kind == "parameter")
        elif isinstance(part, tuple | list):
            for item in part:
                visit(item)
        elif isinstance(part, dict):
            for item in part.values():
                visit(item)

    if isinstance(operation, Assert):
        visit(operation.condition)
    elif isinstance(operation, Extern):
        visit(operation.args)
        visit(operation.kwargs)
    for argument in refs((operation.args, operation.kwargs)) if isinstance(operation, Extern) else ():
        visit((argument.sizes, argument.strides, argument.offset))
    return frozenset(found)


def _nest_symbols(nest: Nest) -> frozenset[ex.Expr | str]:
    """Symbols and parameters that must have values before the nest runs."""
    found: set[ex.Expr | str] = set()
    for axis in nest.axes:
        found |= ex.free_symbols(axis.size)
    for indices in read_indices(nest).values():
        for index in indices:
            found |= ex.free_symbols(index)
    for node in walk(*(value for statement in nest.statements for value in values(statement))):
        if node.kind == "parameter":
            found.add(node.args[0])
        elif node.kind == "index":
            found |= ex.free_symbols(node.index)
    return frozenset(found)
