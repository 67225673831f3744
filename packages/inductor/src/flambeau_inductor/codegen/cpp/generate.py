"""``KernelBody`` -> one C++ function, by way of the kernel IR.

In: kernels from ``schedule``. Out: ``GeneratedKernel``s whose sources together, after the support headers (``unit.py``), are a translation unit.
``layout.py`` decides the loops, ``passes.py`` what each pass over the inner loops does; ``loops.py`` builds loops, ``statements.py``
what happens in them, ``emit.py`` the values; ``function.py`` prints the kernel that they make.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import product
from ...ir.scalar import Scalar, walk
from ...kernel_ir import NO_TILES, Node, Variable
from ...schedule.nest import values
from ..kernel import GeneratedKernel, with_shared_sources
from .canonical import canonical
from .emit import Slot
from .function import SLICE, function_text, identifier
from .layout import MOST_LANES, TILE_COLUMNS, work_of
from .loops import ONE, LoopWriter
from .passes import is_dear, kept_values, scan_levels
from .reduce import Accumulator, in_double
from .statements import HIGH, LOW, traffic

CHECKS = ("index out of range", "integer division or modulo by zero")
#: A value kept for a later pass may take this many elements of scratch on the stack, in all.
STACK_ELEMENTS = 65536
#: Elements of a row that a scan takes at a time: many where they are combined side by side, else few, so that the lanes of the next block are
#: computed while one step waits for the other.
RUN, RUN_IN_TURN = 512, 64
#: A sum over more elements than this adds up in chunks first, so that its error does not grow with the length.
CHUNK = 8192
#: The same of a sum over rows, in rows.
ROWS_CHUNK = 128
#: A column of a block, counted from its first.
COLUMN = kir.position("k")


def generate(bodies: Sequence[KernelBody]) -> list[GeneratedKernel]:
    """C++ for every kernel, in order; a kernel that says the same as an earlier one shares its function, and those alike are built once."""
    built: dict[KernelBody, GeneratedKernel] = {}
    kernels: list[GeneratedKernel] = []
    for body in bodies:
        renamed, names = canonical(body)
        nameless = evolve(renamed, name="", origins=(), stacks=())
        found = built.get(nameless)
        if found is None:
            found = built[nameless] = _generated(nameless)
        name = f"cpp_{identifier(body.name)}"
        kernels.append(
            evolve(
                found,
                name=name,
                source=f"{_opening(name)}\n{found.source}",
                buffers=tuple(names[buffer] for buffer in found.buffers),
                meta={"origins": list(body.origins), **found.meta},
            )
        )
    return with_shared_sources(kernels)


def _opening(name: str) -> str:
    return f'extern "C" int64_t {name}(void* const* B, const int64_t* S, int64_t begin, int64_t end) {{'


def _generated(body: KernelBody) -> GeneratedKernel:
    """The kernel without a name: its source is what comes behind the opening of the function."""
    writer = KernelWriter(body)
    kernel = writer.kernel()
    moved = traffic(body)
    bytes_each = moved // max(ex.hint(writer.plan.extent), 1)
    text = function_text(kernel, body.scalars, writer.plan.lane_bytes, bytes_each, in_order=body.in_order)
    return GeneratedKernel(
        "",
        f"{text.lines}}}\n",
        writer.arguments,
        tuple(pointer.dtype for pointer in kernel.pointers),
        body.scalars,
        text.scalar_kinds,
        writer.plan.extent,
        writer.plan.grain,
        CHECKS if text.fails else (),
        {"bytes": moved, "mode": writer.plan.mode},
        text.lines,
        kernels=(kernel,),
        functions=text.functions,
    )


class KernelWriter(LoopWriter):
    """Builds one kernel: each mode of the plan is a method."""

    def kernel(self) -> kir.Kernel:
        """The kernel in the kernel IR."""
        em = self.emitter
        for pointer, source in self.aliases.items():
            em.add(kir.Alias(pointer, source))
        modes: dict[str, Callable[[], None]] = {
            "flat": self._flat, "tile": self._tile, "rows": self._rows, "columns": self._columns, "scatter": self._scatter, "scalar": self._one_by_one,
        }  # fmt: skip
        modes[self.plan.mode]()
        vector = self.plan.vector
        single = vector is not None and vector.size is ex.ONE
        return kir.Kernel(
            tuple(self.tiles),
            64,
            tuple(self.storage.values()),
            (*SLICE, *map(self._scalar, self.body.scalars)),
            tuple((tile, 1) for tile in self.tiles) if single else (),
            em.pop(),
            called=True,
        )

    def _scalar(self, scalar: Expr | str) -> Variable:
        if isinstance(scalar, Expr):
            return kir.position(f"n_{scalar.name}")
        dtype = next(
            node.dtype
            for statement in self.body.statements
            for node in walk(*values(statement))
            if node.kind == "parameter" and node.args[0] == scalar
        )
        return Variable(f"p_{scalar}", NO_TILES, dtype)

    # ---- modes ------------------------------------------------------------------------------------------------------------------
    def _flat(self) -> None:
        plan = self.plan
        assert plan.vector is not None
        if not plan.outer:
            self._lanes(1, SLICE, self.passes.inner[0])
            return
        piece = kir.position("piece")
        with self._points([(piece, self._pieces(plan.vector.size, plan.cut))] if plan.cut else []):
            bounds = self._whole(plan.vector)
            if plan.cut:
                self._cut(piece, plan.cut, bounds[1])
                bounds = LOW, HIGH
            self._lanes(2, bounds, self.passes.inner[0])

    def _tile(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None and plan.tiled is not None and plan.cut is not None
        tile = kir.position("tile")
        with self._points([(tile, self._pieces(plan.tiled.size, plan.cut))]):
            size = self._index(plan.vector.size)
            self._cut(tile, plan.cut, self._index(plan.tiled.size))
            rows = self.know(plan.tiled, 2)
            em.tiled_axis, em.row = plan.tiled.symbol, kir.position("row")
            position = self._open_lanes(2)
            assert em.lanes is not None
            self._statements(self.passes.inner[0])
            body = em.pop()
            panels = tuple(em.panels)
            em.add(kir.Squares("block", position, em.lanes, size, TILE_COLUMNS, rows, LOW, HIGH, em.row, panels, body))

    def _rows(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None
        with self._points():
            kept = self._spill_rows()
            for number, statements in enumerate(self.passes.inner):
                self._statements(self.passes.after[number])
                accumulators = [Accumulator.of(s) for s in statements if isinstance(s, Reduce)]
                scans = [s for s in statements if isinstance(s, ScanStep)]
                if scans:
                    self._scan_pass(number, statements, accumulators, scans, kept)
                else:
                    self._row_pass(number, statements, accumulators, kept)
                for a in accumulators:
                    word = self.words[a.name]
                    name = Variable(f"f{number}_{word}", NO_TILES, a.result)
                    em.add(kir.Assign((name,), kir.Reduce(a.kind, a.variables(word, self.tiles), a.kind)))
                    em.reduced[a.name] = name
                    em.depth_of[a.name] = 1
            self._statements(self.passes.after[len(self.passes.inner)])

    def _row_pass(
        self, number: int, statements: Sequence[Statement], accumulators: list[Accumulator], kept: dict[Scalar, int]
    ) -> None:
        plan = self.plan
        assert plan.vector is not None
        unroll, chunked = self._unroll(statements, accumulators)
        self._start_pass(number, accumulators, kept)
        label, deep, (low, size) = f"body{number}", 2 + len(plan.inner), self._whole(plan.vector)
        with self._inner():
            if chunked:
                with self._blocks(size, CHUNK):
                    self._lanes(deep, (LOW, HIGH), statements, label, accumulators, unroll)
            else:
                self._lanes(deep, (low, size), statements, label, accumulators, unroll if unroll > 1 else 0)

    def _start_pass(self, number: int, accumulators: list[Accumulator], kept: dict[Scalar, int]) -> None:
        em = self.emitter
        if accumulators:
            em.add(kir.Begin(str(number), tuple(a.begin(self.words[a.name], self.tiles) for a in accumulators)))
        em.spilled = {n: self._spill_slot(n) for n, first in kept.items() if first < number}
        em.spill_writes = {n: self._spill_slot(n) for n, first in kept.items() if first == number}

    def _scan_pass(
        self,
        number: int,
        statements: Sequence[Statement],
        accumulators: list[Accumulator],
        scans: list[ScanStep],
        kept: dict[Scalar, int],
    ) -> None:
        """Block by block of the row: what is scanned, in lanes; what it comes to, one after another; and what is made of that, in lanes."""
        em = self.emitter
        assert self.plan.vector is not None
        self._start_pass(number, accumulators, kept)
        running = {s.name: in_double(a) if s.name in self.in_double else a for s in scans for a in [Accumulator.of(s)]}
        length = RUN if all(a.in_any_order for a in running.values()) else RUN_IN_TURN
        for scan in scans:
            a, word = running[scan.name], self.words[scan.name]
            em.add(kir.Begin(word, (a.begin(f"a_{word}", NO_TILES),)))
            em.add(kir.LocalArray(self._run_slot(scan).array, kir.Number(length), whole=True))
        with self._blocks(self._index(self.plan.vector.size), length):
            for level, group in enumerate(scan_levels(scans)):
                self._lanes(2, (LOW, HIGH), group, f"values{number}_{level}")
                for scan in group:
                    a, slot = running[scan.name], self._run_slot(scan)
                    (last,) = a.variables(f"a_{self.words[scan.name]}", NO_TILES)
                    count = kir.arith("sub", HIGH, LOW)
                    em.add(kir.RunInPlace(a.kind, last, slot.array, count, length, a.in_any_order))
                    em.columns[scan.name] = slot
                    em.lane_reduced.add(scan.name)
            rest = [s for s in statements if not isinstance(s, ScanStep)]
            self._lanes(2, (LOW, HIGH), rest, f"body{number}", accumulators, 1 if accumulators else 0)

    def _unroll(self, statements: Sequence[Statement], accumulators: list[Accumulator]) -> tuple[int, bool]:
        assert self.plan.vector is not None
        length = ex.hint(self.plan.vector.size)
        if not accumulators or any(a.is_argument for a in accumulators) or length < 64:
            return 1, False
        work = sum(work_of(v) for s in statements for v in values(s))
        # Each copy has values and accumulators of its own, and there are 16 or 32 registers.
        unroll = 4 if work <= 32 else 2 if work <= 80 else 1
        unroll = max(unroll // 2, 1) if self.plan.lane_bytes == 2 else unroll
        return unroll, length > 2 * CHUNK and any(a.kind == "sum" for a in accumulators)

    def _columns(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None and plan.cut is not None
        block = kir.position("block")
        with self._points([(block, self._pieces(plan.vector.size, plan.cut))]):
            if plan.is_one_piece:
                # Bounds that the compiler knows: it keeps what few columns come to in registers.
                em.add(kir.Assign((LOW,), kir.Number(0)))
                em.add(kir.Assign((HIGH,), self._index(plan.vector.size)))
            else:
                self._cut(block, plan.cut, self._index(plan.vector.size))
            em.lane_reduced = {s.name for s in self.body.statements if not isinstance(s, Store)}
            kept = self._spill_columns()
            for number, statements in enumerate(self.passes.inner):
                self._column_phase(number, kept)
                accumulators = [Accumulator.of(s) for s in statements if not isinstance(s, Store)]
                slots = {a: self._column(f"c_{self.words[a.name]}", a) for a in accumulators}
                for a, slot in slots.items():
                    em.add(kir.LocalArray(slot.array, kir.Number(plan.cut), a.start(), whole=True))
                self._column_pass(number, statements, accumulators, kept)
                em.columns.update({a.name: slot for a, slot in slots.items()})
            self._column_phase(len(self.passes.inner), kept)

    def _column_pass(
        self,
        number: int,
        statements: Sequence[Statement],
        accumulators: list[Accumulator],
        kept: dict[Scalar, int],
    ) -> None:
        em, plan = self.emitter, self.plan
        em.spilled = {node: self._column_slot(node) for node, at in kept.items() if at <= number}
        em.spill_writes = {}
        deep, label = 2 + len(plan.inner), f"body{number}"
        sums = [a for a in accumulators if a.kind == "sum"]
        scans = any(isinstance(s, ScanStep) for s in statements)
        if not sums or scans or self.body.in_order or ex.hint(plan.inner[0].size) < 512:
            with self._inner():
                self._lanes(deep, (LOW, HIGH), statements, label)
            return
        # Chunk by chunk of the rows, each of which is added to what those before it came to.
        chunk, size = kir.position("from"), self._index(plan.inner[0].size)
        wholes = {a: kir.Pointer(f"d_{self.words[a.name]}", a.dtype) for a in sums}
        for a, whole in wholes.items():
            em.add(kir.LocalArray(whole, self._width(), a.start()))
        em.push(1)
        end = kir.arith("min", kir.total(chunk, kir.Number(ROWS_CHUNK)), size)
        with self._inner((chunk, end)):
            self._lanes(deep, (LOW, HIGH), statements, label)
        for a, whole in wholes.items():
            self._add_chunk(a, whole)
        em.add(kir.loop(chunk, size, kir.Number(ROWS_CHUNK), em.pop()))
        for a, whole in wholes.items():
            part = self._column(f"c_{self.words[a.name]}", a).array
            self._each_column(kir.Store(part, COLUMN, kir.Load(whole, COLUMN)))

    def _width(self) -> kir.Number:
        assert self.plan.cut is not None
        return kir.Number(self.plan.cut)

    def _add_chunk(self, a: Accumulator, whole: kir.Pointer) -> None:
        part = self._column(f"c_{self.words[a.name]}", a).array
        added = a.combine((kir.Load(whole, COLUMN),), (kir.Load(part, COLUMN),))
        self._each_column(kir.Store(whole, COLUMN, added), kir.Store(part, COLUMN, a.start()))

    def _each_column(self, *statements: kir.Statement) -> None:
        self.emitter.add(kir.loop(COLUMN, self._width(), ONE, statements))

    def _column_phase(self, number: int, kept: dict[Scalar, int]) -> None:
        """Once a column: stores after the passes so far, and values that the next pass needs at every row."""
        stores = self.passes.after[number]
        invariant = [node for node, at in kept.items() if at == number]
        if not stores and not invariant:
            return
        em = self.emitter
        em.spilled = {node: self._column_slot(node) for node, at in kept.items() if at < number}
        em.spill_writes = {node: self._column_slot(node) for node in invariant}
        self._lanes(2, (LOW, HIGH), stores, f"column{number}", extra=invariant)

    def _scatter(self) -> None:
        plan = self.plan
        assert plan.vector is not None and plan.cut is not None
        block = kir.position("block")
        with self._points([(block, self._pieces(plan.vector.size, plan.cut))]):
            self._cut(block, plan.cut, self._index(plan.vector.size))
            with self._inner():
                self._lanes(2 + len(plan.inner), (LOW, HIGH), self.passes.inner[0])

    def _one_by_one(self) -> None:
        plan, em = self.plan, self.emitter
        with self._points():
            for number, statements in enumerate(self.passes.inner):
                self._statements(self.passes.after[number])
                accumulators = [Accumulator.of(s) for s in statements if not isinstance(s, Store)]
                begun = {a: a.begin(f"a_{self.words[a.name]}", NO_TILES) for a in accumulators}
                for a, begin in begun.items():
                    em.add(kir.Begin(self.words[a.name], (begin,)))
                with self._inner():
                    em.depth_of.update({s.name: 2 + len(plan.inner) for s in statements if isinstance(s, ScanStep)})
                    em.push(2 + len(plan.inner))
                    self._statements(statements)
                    inside = em.pop()
                    em.scope.statements.extend(inside)
                for a, begin in begun.items():
                    em.reduced[a.name] = begin.targets[-1]
                    em.depth_of[a.name] = 1
            self._statements(self.passes.after[len(self.passes.inner)])

    # ---- values kept between passes
    def _inner_numel(self) -> Expr:
        return product([axis.size for axis in self.body.inner])

    def _spill_rows(self) -> dict[Scalar, int]:
        last = self.body.inner[-1].symbol
        kept = kept_values(self.passes, lambda n: last in self.emitter.needs(n) and is_dear(n) and not self._unsafe(n))
        return self._scratch(kept, self._inner_numel())

    def _unsafe(self, node: Scalar) -> bool:
        return any(part.op == "check_bounds" for part in walk(node))

    def _scratch(self, kept: dict[Scalar, int], each: Expr) -> dict[Scalar, int]:
        """Room for each kept value, on the stack where it fits; none of them where even the heap is too much."""
        if not kept or each.hi * len(kept) > (1 << 22):
            return {}
        fits = each.is_int and int(each) * len(kept) <= STACK_ELEMENTS
        # Two registers lie side by side as they are, the last ones of a row too, whatever lanes they have.
        room = each + 2 * MOST_LANES if self.plan.lane_bytes == 2 else each
        self._reserve(kept, self._index(room), not fits)
        return kept

    def _reserve(self, kept: dict[Scalar, int], length: Node, heap: bool = False) -> None:
        self.slots = {node: kir.Pointer(f"k{n}", node.dtype) for n, node in enumerate(kept)}
        reserved = [kir.LocalArray(slot, length, heap=heap) for slot in self.slots.values()]
        self.emitter.scopes[0].statements.extend(reserved)

    def _spill_slot(self, node: Scalar) -> Slot:
        return Slot(self.slots[node], self._row_position())

    def _spill_columns(self) -> dict[Scalar, int]:
        """Expensive values that are the same in every row -> the pass before which they are computed, once a column."""
        em, vector = self.emitter, self.plan.vector
        assert vector is not None
        inner = {axis.symbol for axis in self.body.inner}
        lanes = {vector.symbol, *em.lane_reduced}
        kept: dict[Scalar, int] = {}
        for number, statements in enumerate(self.passes.inner):
            stack = [v for s in statements for v in values(s)]
            seen: set[Scalar] = set()
            while stack:
                node = stack.pop()
                if node in seen:
                    continue
                seen.add(node)
                needs = em.needs(node)
                if needs.isdisjoint(inner) and not needs.isdisjoint(lanes) and is_dear(node) and not self._unsafe(node):
                    if not any(isinstance(s, ScanStep) and s.name in needs for s in self.body.statements):
                        kept.setdefault(node, number)
                    continue
                stack.extend(node.children)
        self._reserve(kept, self._width())
        return kept

    def _column_slot(self, node: Scalar) -> Slot:
        return Slot(self.slots[node], self._offset())
