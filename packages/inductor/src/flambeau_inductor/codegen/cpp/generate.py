"""``KernelBody`` -> one C++ function.

In: kernels from ``schedule``. Out: ``GeneratedKernel``s whose sources together, after the support headers (``unit.py``), are a translation unit.
``layout.py`` decides the loops, ``passes.py`` what each pass over the inner loops does; ``loops.py`` writes loops, ``statements.py``
what happens in them, ``emit.py`` the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import product
from ...ir.scalar import Scalar, walk
from ...schedule.nest import values
from ..kernel import GeneratedKernel, with_shared_sources
from .canonical import canonical
from .dtypes import MEMORY, held
from .emit import Value
from .layout import TILE_COLUMNS, work_of
from .loops import INLINE, LoopWriter
from .passes import is_dear, kept_values, scan_levels
from .reduce import Accumulator, in_double

CHECKS = ("index out of range", "integer division or modulo by zero")
#: A value kept for a later pass may take this many elements of scratch on the stack, in all.
STACK_ELEMENTS = 65536
#: Elements of a row that a scan takes at a time: many where they are combined side by side, else few, so that the lanes of the next block are
#: computed while one step waits for the other.
RUN, RUN_IN_TURN = 512, 64
#: A sum over more elements than this adds up in chunks first, so that its error does not grow with the length.
CHUNK = 8192


def generate(bodies: Sequence[KernelBody]) -> list[GeneratedKernel]:
    """C++ for every kernel, in order; a kernel that says the same as an earlier one shares its function."""
    kernels: list[GeneratedKernel] = []
    for body in bodies:
        renamed, names = canonical(body)
        kernel = KernelWriter(renamed).generate()
        kernels.append(evolve(kernel, buffers=tuple(names[name] for name in kernel.buffers)))
    return with_shared_sources(kernels)


class KernelWriter(LoopWriter):
    """Writes one kernel: each mode of the plan is a method."""

    def generate(self) -> GeneratedKernel:
        """The function's text and how to launch it."""
        body = self.body
        getattr(self, "_one_by_one" if self.plan.mode == "scalar" else f"_{self.plan.mode}")()
        name = f"cpp_{re.sub(r'[^0-9A-Za-z_]', '_', body.name)}"
        lines = [
            f"constexpr int W = fb::register_bytes / {self.plan.lane_bytes};",
            "(void)W;",
            "int64_t failed = 0;",
            "if (begin >= end) return 0;",
        ]
        for n, argument in enumerate(self.arguments):
            kind = MEMORY[self.buffers[argument].layout.dtype]
            lines.append(f"{kind}* const b{n} = ({kind}*)B[{n}];")
        kinds = "".join(self._scalar(lines, n, scalar) for n, scalar in enumerate(body.scalars))
        lines += self.emitter.scopes[0].lines
        lines.append("return failed;")
        opening = f'extern "C" int64_t {name}(void* const* B, const int64_t* S, int64_t begin, int64_t end) {{'
        code = "".join(f"  {line}\n" for line in lines)
        return GeneratedKernel(
            name,
            f"{opening}\n{code}}}\n",
            self.arguments,
            tuple(self.buffers[a].layout.dtype for a in self.arguments),
            body.scalars,
            kinds,
            self.plan.extent,
            self.plan.grain,
            CHECKS if self.emitter.may_fail else (),
            {"origins": list(body.origins), "bytes": _traffic(body), "mode": self.plan.mode},
            code,
        )

    def _scalar(self, lines: list[str], n: int, scalar: Expr | str) -> str:
        if isinstance(scalar, Expr):
            lines.append(f"[[maybe_unused]] const int64_t n_{scalar.name} = S[{n}];")
            return "i"
        dtype = next(
            node.dtype
            for statement in self.body.statements
            for node in walk(*values(statement))
            if node.kind == "parameter" and node.args[0] == scalar
        )
        kind = held(dtype)
        value = f"__builtin_bit_cast(double, S[{n}])" if dtype.is_floating_point else f"S[{n}]"
        lines.append(f"const {kind} p_{scalar} = ({kind}){value};")
        return "f" if dtype.is_floating_point else "i"

    # ---- modes ------------------------------------------------------------------------------------------------------------------
    def _flat(self) -> None:
        plan = self.plan
        assert plan.vector is not None
        x = plan.vector.symbol.name
        if not plan.outer:
            self._lines(self._vector_body(1, [x], self.passes.inner[0]))
            self._vector_loop("begin", "end", "body")
            return
        size = self._text(plan.vector.size)
        pieces = [("piece", self._pieces(plan.vector.size, plan.cut))] if plan.cut else []
        self._open_points(pieces)
        low, high = "0", size
        if plan.cut:
            low, high = "low", "high"
            self._line(f"const int64_t low = piece * {plan.cut}, high = fb::smaller(low + {plan.cut}, {size});")
        self._lines(self._vector_body(2, [x], self.passes.inner[0]))
        self._vector_loop(low, high, "body")
        self._close_points()

    def _tile(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None and plan.tiled is not None
        x, y = plan.vector.symbol.name, plan.tiled.symbol.name
        self._open_points([("tile", self._pieces(plan.tiled.size, plan.cut))])
        size = self._text(plan.vector.size)
        self._line(
            f"const int64_t low = tile * {plan.cut}, high = fb::smaller(low + {plan.cut}, {self._text(plan.tiled.size)});"
        )
        em.depth_of[plan.tiled.symbol] = 2
        em.spelling[plan.tiled.symbol] = y
        em.tiled_axis = plan.tiled.symbol
        body = self._vector_body(2, [x, y, "row"], self.passes.inner[0])
        # The panels belong to one block: where its rows are unrolled they stay in registers.
        panels = [f"alignas(64) {MEMORY[self.buffers[p.buffer].layout.dtype]} {p.name}[W * W];" for p in em.panels]
        rows = f"for (int64_t row = 0; row < rows; ++row) body(t, {x}, {y} + row, row);"
        inside = [*panels, *body, *self._turned(False), rows, *self._turned(True)]
        parameters = f"auto t, const int64_t {x}, int64_t lanes, const int64_t {y}, int64_t rows"
        self._line(f"const auto block = [&]({parameters}) {INLINE} {{")
        em.scope.lines.extend("  " + line for line in inside)
        self._line("};")
        self._line(f"for (int64_t chunk = 0; chunk < {size}; chunk += {TILE_COLUMNS})")
        self._line("  for (int64_t top = low; top < high; top += W)")
        self._line(f"    for (int64_t at = chunk; at < fb::smaller(chunk + {TILE_COLUMNS}, {size}); at += W) {{")
        self._line(f"      const int64_t lanes = fb::smaller(W, {size} - at), rows = fb::smaller(W, high - top);")
        self._line("      if (lanes == W && rows == W) block(fb::Full{}, at, W, top, W);")
        self._line("      else block(fb::first<W>(lanes), at, lanes, top, rows);")
        self._line("    }")
        self._close_points()

    def _turned(self, stores: bool) -> list[str]:
        """Move the blocks that run along the tiled axis between memory and their panels."""
        lines = []
        for panel in self.emitter.panels:
            at = f"{self.pointers[panel.buffer]} + ({self._text(panel.index)})"
            step = self._text(panel.step)
            if panel.stored and stores:
                lines.append(f"fb::turn<W>({panel.name}, W, rows, lanes, {at}, {step});")
            elif not panel.stored and not stores:
                lines.append(f"fb::turn<W>({at}, {step}, lanes, rows, {panel.name}, W);")
        return lines

    def _rows(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None
        self._open_points([])
        deep = 2 + len(plan.inner)
        kept = self._spill_rows()
        for number, statements in enumerate(self.passes.inner):
            self._statements(self.passes.after[number])
            accumulators = [Accumulator.of(s) for s in statements if isinstance(s, Reduce)]
            scans = [s for s in statements if isinstance(s, ScanStep)]
            if scans:
                self._scan_pass(number, statements, accumulators, scans, kept)
            else:
                self._row_pass(number, statements, accumulators, deep, kept)
            for a in accumulators:
                name = f"f{number}_{self.words[a.name]}"
                self._line(f"const {held(a.result)} {name} = {a.fold(f'a{number}.{self.words[a.name]}')};")
                em.reduced[a.name] = Value(name, False)
                em.depth_of[a.name] = 1
        self._statements(self.passes.after[len(self.passes.inner)])
        self._close_points()

    def _row_pass(
        self,
        number: int,
        statements: Sequence[Statement],
        accumulators: list[Accumulator],
        deep: int,
        kept: dict[Scalar, int],
    ) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None
        unroll, chunked = self._unroll(statements, accumulators)
        self._start_pass(number, accumulators, kept)
        self._open_inner()
        x, size = plan.vector.symbol.name, self._text(plan.vector.size)
        body = f"body{number}"
        self._lines(self._vector_body(deep, [x], statements, body, number if accumulators else None))
        if not accumulators:
            self._vector_loop("0", size, body)
        elif chunked:
            em.push(em.scope.depth)
            self._line(f"const int64_t high = fb::smaller(low + {CHUNK}, {size});")
            self._reduction_loop(number, accumulators, unroll, "low", "high", body, f"s{number}_", f"a{number}")
            self._block(f"for (int64_t low = 0; low < {size}; low += {CHUNK})", em.pop())
        else:
            self._reduction_loop(number, accumulators, unroll, "0", size, body, f"s{number}_", f"a{number}")
        self._close_inner()

    def _start_pass(self, number: int, accumulators: list[Accumulator], kept: dict[Scalar, int]) -> None:
        em = self.emitter
        if accumulators:
            fields = " ".join(f"{a.lanes_type()} {self.words[a.name]} = {a.lanes_start()};" for a in accumulators)
            self._line(f"struct A{number} {{ {fields} }} a{number};")
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
        x, size = self.plan.vector.symbol.name, self._text(self.plan.vector.size)
        self._start_pass(number, accumulators, kept)
        running = {s.name: in_double(a) if s.name in self.in_double else a for s in scans for a in [Accumulator.of(s)]}
        length = RUN if all(a.in_any_order for a in running.values()) else RUN_IN_TURN
        for scan in scans:
            a, word = running[scan.name], self.words[scan.name]
            self._line(f"{held(a.dtype)} a_{word} = {a.start()};")
            self._line(f"alignas(64) {held(scan.value.dtype)} r_{word}[{length}];")
        em.push(em.scope.depth)
        self._line(f"const int64_t high = fb::smaller(low + {length}, {size});")
        for level, group in enumerate(scan_levels(scans)):
            self._lines(self._vector_body(2, [x], group, f"values{number}_{level}"))
            self._vector_loop("low", "high", f"values{number}_{level}")
            for scan in group:
                word = self.words[scan.name]
                self._line(running[scan.name].run(f"a_{word}", f"r_{word}", "high - low", length))
                em.columns[scan.name] = self._run_slot(scan)
                em.lane_reduced.add(scan.name)
        rest = [s for s in statements if not isinstance(s, ScanStep)]
        body = f"body{number}"
        self._lines(self._vector_body(2, [x], rest, body, number if accumulators else None))
        if accumulators:
            self._reduction_loop(number, accumulators, 1, "low", "high", body, f"s{number}_", f"a{number}")
        else:
            self._vector_loop("low", "high", body)
        self._block(f"for (int64_t low = 0; low < {size}; low += {length})", em.pop())

    def _reduction_loop(
        self,
        number: int,
        accumulators: list[Accumulator],
        unroll: int,
        low: str,
        high: str,
        body: str,
        part: str,
        total: str,
    ) -> None:
        em = self.emitter
        em.push(em.scope.depth)
        simple = unroll == 1 and low == "0"
        names = [total] if simple else [f"{part}{k}" for k in range(unroll)]
        if not simple:
            self._line(f"A{number} {', '.join(names)};")
        self._line(f"int64_t at = {low};")
        if unroll > 1:
            calls = " ".join(f"{body}(fb::Full{{}}, at + {k} * W, {name});" for k, name in enumerate(names))
            self._line(f"for (; at + {unroll} * W <= {high}; at += {unroll} * W) {{ {calls} }}")
        self._line(f"for (; at + W <= {high}; at += W) {body}(fb::Full{{}}, at, {names[0]});")
        self._line(f"if (at < {high}) {body}(fb::first<W>({high} - at), at, {names[0]});")
        if not simple:
            for a in accumulators:
                word = self.words[a.name]
                text = f"{names[0]}.{word}"
                for name in names[1:]:
                    text = a.combine(text, f"{name}.{word}")
                self._line(f"{total}.{word} = {a.combine(f'{total}.{word}', text)};")
        self._block("", em.pop())

    def _unroll(self, statements: Sequence[Statement], accumulators: list[Accumulator]) -> tuple[int, bool]:
        assert self.plan.vector is not None
        length = ex.hint(self.plan.vector.size)
        if not accumulators or any(a.is_argument for a in accumulators) or length < 64:
            return 1, False
        work = sum(work_of(v) for s in statements for v in values(s))
        # Each copy has values and accumulators of its own, and there are 16 or 32 registers.
        unroll = 4 if work <= 32 else 2 if work <= 80 else 1
        return unroll, length > 2 * CHUNK and any(a.kind == "sum" for a in accumulators)

    def _columns(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None
        size = self._text(plan.vector.size)
        self._open_points([("block", self._pieces(plan.vector.size, plan.cut))])
        self._line(f"const int64_t low = block * {self.plan.cut}, high = fb::smaller(low + {self.plan.cut}, {size});")
        x = plan.vector.symbol.name
        em.lane_reduced = {s.name for s in self.body.statements if not isinstance(s, Store)}
        kept = self._spill_columns()
        for number, statements in enumerate(self.passes.inner):
            self._column_phase(number, kept)
            accumulators = [Accumulator.of(s) for s in statements if not isinstance(s, Store)]
            for a in accumulators:
                self._line(f"alignas(64) {held(a.dtype)} c_{self.words[a.name]}[{self.plan.cut}];")
                self._line(f"for (int k = 0; k < {self.plan.cut}; ++k) c_{self.words[a.name]}[k] = {a.start()};")
            self._column_pass(number, statements, accumulators, kept)
            for a in accumulators:
                em.columns[a.name] = f"c_{self.words[a.name]} + ({x} - low)"
        self._column_phase(len(self.passes.inner), kept)
        self._close_points()

    def _column_pass(
        self,
        number: int,
        statements: Sequence[Statement],
        accumulators: list[Accumulator],
        kept: dict[Scalar, int],
    ) -> None:
        em, plan = self.emitter, self.plan
        assert plan.vector is not None
        em.spilled = {node: self._column_slot(node) for node, at in kept.items() if at <= number}
        em.spill_writes = {}
        deep = 2 + len(plan.inner)
        sums = [a for a in accumulators if a.kind == "sum"]
        chunked = (
            bool(sums) and not any(isinstance(s, ScanStep) for s in statements) and ex.hint(plan.inner[0].size) >= 512
        )
        if chunked:
            for a in sums:
                self._line(f"alignas(64) {held(a.dtype)} d_{self.words[a.name]}[{self.plan.cut}];")
                self._line(f"for (int k = 0; k < {self.plan.cut}; ++k) d_{self.words[a.name]}[k] = {a.start()};")
            first = self._text(plan.inner[0].size)
            em.push(1)
            self._open_inner(("from", f"fb::smaller(from + 128, {first})"))
        else:
            self._open_inner()
        x = plan.vector.symbol.name
        self._lines(self._vector_body(deep, [x], statements, f"body{number}"))
        self._vector_loop("low", "high", f"body{number}")
        self._close_inner()
        if chunked:
            for a in sums:
                word = self.words[a.name]
                self._line(
                    f"for (int k = 0; k < {self.plan.cut}; ++k) {{ d_{word}[k] += c_{word}[k]; c_{word}[k] = {a.start()}; }}"
                )
            self._block(f"for (int64_t from = 0; from < {first}; from += 128)", em.pop())
            for a in sums:
                self._line(
                    f"for (int k = 0; k < {self.plan.cut}; ++k) c_{self.words[a.name]}[k] = d_{self.words[a.name]}[k];"
                )

    def _column_phase(self, number: int, kept: dict[Scalar, int]) -> None:
        """Once a column: stores after the passes so far, and values that the next pass needs at every row."""
        assert self.plan.vector is not None
        stores = self.passes.after[number]
        invariant = [node for node, at in kept.items() if at == number]
        if not stores and not invariant:
            return
        x = self.plan.vector.symbol.name
        em = self.emitter
        em.spilled = {node: self._column_slot(node) for node, at in kept.items() if at < number}
        em.spill_writes = {node: self._column_slot(node) for node in invariant}
        self._lines(self._vector_body(2, [x], stores, f"column{number}", extra=invariant))
        self._vector_loop("low", "high", f"column{number}")

    def _scatter(self) -> None:
        plan = self.plan
        assert plan.vector is not None
        size = self._text(plan.vector.size)
        self._open_points([("block", self._pieces(plan.vector.size, plan.cut))])
        self._line(f"const int64_t low = block * {self.plan.cut}, high = fb::smaller(low + {self.plan.cut}, {size});")
        self._open_inner()
        x = plan.vector.symbol.name
        self._lines(self._vector_body(2 + len(plan.inner), [x], self.passes.inner[0]))
        self._vector_loop("low", "high", "body")
        self._close_inner()
        self._close_points()

    def _one_by_one(self) -> None:
        plan, em = self.plan, self.emitter
        self._open_points([])
        for number, statements in enumerate(self.passes.inner):
            self._statements(self.passes.after[number])
            accumulators = [Accumulator.of(s) for s in statements if not isinstance(s, Store)]
            for a in accumulators:
                self._line(f"{a.scalar_type()} a_{self.words[a.name]} = {a.scalar_start()};")
            self._open_inner()
            em.depth_of.update({s.name: 2 + len(plan.inner) for s in statements if isinstance(s, ScanStep)})
            em.push(2 + len(plan.inner))
            self._statements(statements)
            lines = em.pop()
            em.scope.lines.extend(lines)
            self._close_inner()
            for a in accumulators:
                text = f"fb::larger(a_{self.words[a.name]}.index, 0)" if a.is_argument else f"a_{self.words[a.name]}"
                em.reduced[a.name] = Value(f"({text})", False)
                em.depth_of[a.name] = 1
        self._statements(self.passes.after[len(self.passes.inner)])
        self._close_points()

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
        self.slots: dict[Scalar, str] = {}
        for n, node in enumerate(kept):
            self.slots[node] = f"k{n}"
            kind = held(node.dtype)
            if each.is_int and int(each) * len(kept) <= STACK_ELEMENTS:
                self.emitter.scopes[0].lines.append(f"alignas(64) {kind} k{n}[{int(each)}];")
            else:
                self.emitter.scopes[0].lines.append(
                    f"fb::Scratch<{kind}> k{n}_memory({self._text(each)}); {kind}* const k{n} = k{n}_memory.data;"
                )
        return kept

    def _spill_slot(self, node: Scalar) -> str:
        return f"{self.slots[node]} + ({self._position_text()})"

    def _position_text(self) -> str:
        assert self.plan.vector is not None
        position: Expr = ex.ZERO
        for axis in self.body.inner:
            position = position * axis.size + axis.symbol
        self.emitter.spelling.update({axis.symbol: axis.symbol.name for axis in self.body.inner})
        return self.emitter.text_of(position)

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
        for n, node in enumerate(kept):
            self.emitter.scopes[0].lines.append(f"alignas(64) {held(node.dtype)} k{n}[{self.plan.cut}];")
        self.slots = {node: f"k{n}" for n, node in enumerate(kept)}
        return kept

    def _column_slot(self, node: Scalar) -> str:
        assert self.plan.vector is not None
        return f"{self.slots[node]} + ({self.plan.vector.symbol.name} - low)"


def _traffic(body: KernelBody) -> int:
    return sum(ex.hint(b.layout.numel) * b.layout.dtype.itemsize for b in body.buffers)
