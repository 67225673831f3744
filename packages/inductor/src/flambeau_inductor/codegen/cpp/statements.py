"""The statements of a kernel in the kernel IR: accumulate, store, one lane or many.

In: statements of a ``KernelBody`` and the loop plan. Out: statements in the emitter's innermost scope. ``loops.py`` builds the loops
around them, ``generate.py`` chooses which.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import Buffer
from ...ir.loops import Axis
from ...ir.scalar import Scalar, dtype_text, loads, reduced
from ...kernel_ir import NO_TILES, Node, Tiles, Variable
from ...ops.dtypes import HALVES
from ...schedule.nest import values
from .emit import Emitter, Slot
from .layout import LoopPlan, mode_of, plan_loops
from .passes import Passes, plan_passes
from .reduce import Accumulator
from .running import without_doubles

#: How stores of each mode combine what they store with what is there.
_MODES = {"add": "sum", "mul": "prod", "min": "min", "max": "max"}
#: Kernels that read and write fewer bytes than this find them in a cache.
LARGE = 4 << 20
#: Where a block of a row, or of columns, begins and ends.
LOW, HIGH = kir.position("low"), kir.position("high")


class StatementWriter:
    """What one kernel's statements are written with: its plan, pointers, passes and emitter."""

    def __init__(self, body: KernelBody) -> None:
        # Scans that are computed in double precision, and lie in memory as float32.
        self.in_double: frozenset[str] = frozenset()
        if mode_of(body) == "rows":
            body, self.in_double = without_doubles(body)
        self.body = body
        self.plan: LoopPlan = plan_loops(body)
        self.buffers = {b.name: b for b in body.buffers}
        self.arguments = _arguments(body.buffers)
        #: The tile of the lanes: the row's in reductions along them.
        self.tiles: Tiles = NO_TILES
        if self.plan.vector is not None:
            self.tiles = frozenset({kir.ROW if self.plan.mode == "rows" else "x"})
        dtypes = [self.buffers[name].layout.dtype for name in self.arguments]
        self.is_large = traffic(body) >= LARGE
        self._read = {self.buffers[node.buffer].storage for s in body.statements for node in loads(*values(s))}
        self.storage = {
            name: kir.Pointer(f"b{n}", dtype)
            for n, (name, dtype) in enumerate(zip(self.arguments, dtypes, strict=True))
        }
        self.aliases: dict[kir.Pointer, kir.Pointer] = {}
        self.pointers = {b.name: self._pointer(b) for b in body.buffers}
        self.emitter = Emitter(self.pointers)
        self.passes: Passes = self._passes()
        names = [s.name for s in body.statements if not isinstance(s, Store)]
        self.words = {name: f"m{n}" for n, name in enumerate(names)}

    def _pointer(self, buffer: Buffer) -> kir.Pointer:
        first = next(b for b in self.body.buffers if b.storage == buffer.storage)
        argument, dtype = self.storage[first.name], buffer.layout.dtype
        if argument.dtype is dtype:
            return argument
        pointer = kir.Pointer(f"{argument.name}_{dtype_text(dtype)}", dtype)
        self.aliases[pointer] = argument
        return pointer

    def _passes(self) -> Passes:
        if self.body.serial or not self.body.inner:
            return Passes((self.body.statements,), ((), ()))
        return plan_passes(self.body.statements, self.buffers)

    def place(self, axis: Axis) -> Variable:
        """Where a loop is along an axis: in every lane, along the one of the lanes."""
        return Variable(axis.symbol.name, self.tiles if axis is self.plan.vector else NO_TILES, kir.INDEX)

    def know(self, axis: Axis, depth: int) -> Variable:
        """The place along an axis, which the scope of ``depth`` has."""
        self.emitter.depth_of[axis.symbol] = depth
        self.emitter.places[axis.symbol] = found = self.place(axis)
        return found

    def _statements(self, statements: Sequence[Statement]) -> None:
        """All values first, then all stores: a store may overwrite what a later statement reads at the same point."""
        pending: list[kir.Statement] = []
        for statement in statements:
            if isinstance(statement, Store):
                pending.append(self._store(statement))
            else:
                self._accumulate(statement)
        self.emitter.scope.statements.extend(pending)

    def _accumulate(self, statement: Reduce | ScanStep) -> None:
        em = self.emitter
        a = Accumulator.of(statement)
        value = em.wide(em.emit(statement.value), statement.value)
        if self.plan.mode == "rows" and isinstance(statement, ScanStep):
            em.add(em.kept(self._run_slot(statement), _in_lanes(value, self.tiles)))
        elif self.plan.mode == "rows":
            targets = a.variables(self.words[a.name], self.tiles)
            em.add(kir.Update(targets, a.step(targets, value, self._row_position(), em.lanes)))
        elif self.plan.mode == "columns":
            slot = self._column(f"c_{self.words[a.name]}", a)
            # Whole registers, the last of a row too: nobody reads what the others hold, and a load waits for a store under a mask to reach memory.
            found = em.define(a.combine((kir.Load(slot.array, slot.index),), (value,)))
            em.add(kir.Store(slot.array, slot.index, found))
            if isinstance(statement, ScanStep):
                em.scope.values[_running(statement)] = found
        else:
            targets = a.variables(f"a_{self.words[a.name]}", NO_TILES)
            em.add(kir.Update(targets, a.step(targets, value, self._row_position())))
            if isinstance(statement, ScanStep):
                em.scope.values[_running(statement)] = em.define(targets[0])

    def _offset(self, start: Node = LOW) -> Node:
        """How far the lanes are from where their block begins."""
        assert self.plan.vector is not None
        return kir.arith("sub", self.place(self.plan.vector), start)

    def _column(self, name: str, a: Accumulator) -> Slot:
        """Where the columns' running results lie."""
        return Slot(kir.Pointer(name, a.dtype), self._offset())

    def _run_slot(self, statement: ScanStep) -> Slot:
        """Where the values of a scan along a row lie, those of one block of it, and then what they come to."""
        return Slot(kir.Pointer(f"r_{self.words[statement.name]}", statement.value.dtype), self._offset())

    def _row_position(self) -> kir.Index:
        """The row-major position inside the inner axes."""
        position: Expr = ex.ZERO
        for axis in self.body.inner:
            position = position * axis.size + axis.symbol
            self.emitter.places[axis.symbol] = self.place(axis)
        return self.emitter.index(position)

    def _store(self, store: Store) -> kir.Store:
        em = self.emitter
        value = em.wide(em.emit(store.value), store.value)
        pointer = self.pointers[store.buffer]
        index = em.index(store.index)
        varies = index.tiles | value.tiles
        assert store.mode == "set" or pointer.dtype not in HALVES, "sums in a narrow type are the library's"
        panel = em.panel(pointer, index, True) if index.tiles else None
        if panel is not None:
            return kir.Store(panel.array, panel.index, value, em.mask())
        mask = em.mask() if varies else None
        if store.mode != "set":
            a = Accumulator("", _MODES[store.mode], pointer.dtype, pointer.dtype)
            value = a.combine((kir.Load(pointer, index, mask),), (value,))
        # What was read is in a cache already.
        streamed = self.is_large and bool(index.tiles) and self.buffers[store.buffer].storage not in self._read
        return kir.Store(pointer, index, value, mask, streamed and store.mode == "set")


def traffic(body: KernelBody) -> int:
    """Bytes of all that a kernel reads and writes."""
    return sum(ex.hint(b.layout.numel) * b.layout.dtype.itemsize for b in body.buffers)


def _in_lanes(value: Node, tiles: Tiles) -> Node:
    return value if value.tiles else kir.Broadcast(value, tiles)


def _running(statement: ScanStep) -> Scalar:
    return reduced(statement.name, statement.dtype)


def _arguments(buffers: Sequence[Buffer]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for buffer in buffers:
        first.setdefault(buffer.storage, buffer.name)
    return tuple(first.values())
