"""``KernelBody`` -> one C++ function.

In: kernels from ``schedule``. Out: ``GeneratedKernel``s whose sources together, after ``PREAMBLE``, are a translation unit.
``layout.py`` decides the loops, ``passes.py`` what each pass over the inner loops does, ``emit.py`` writes the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch
from attrs import evolve

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import Buffer, product
from ...ir.scalar import Scalar, reduced, walk
from ...schedule.nest import values
from ..kernel import GeneratedKernel
from ..writer import Writer
from .canonical import canonical
from .dtypes import MEMORY, held
from .emit import Emitter, Value
from .layout import TILE, LoopPlan, plan_loops, work_of
from .passes import Passes, is_dear, kept_values, plan_passes
from .reduce import Accumulator

CHECKS = ("index out of range", "integer division or modulo by zero")
#: A value kept for a later pass may take this many elements of scratch on the stack, in all.
STACK_ELEMENTS = 65536
#: A sum over more elements than this adds up in chunks first, so that its error does not grow with the length.
CHUNK = 8192


def generate(bodies: Sequence[KernelBody]) -> list[GeneratedKernel]:
    """C++ for every kernel, in order; a kernel that says the same as an earlier one shares its function and has no source."""
    first: dict[str, str] = {}
    kernels: list[GeneratedKernel] = []
    for body in bodies:
        renamed, names = canonical(body)
        kernel = KernelWriter(renamed).generate()
        kernel = evolve(kernel, buffers=tuple(names[name] for name in kernel.buffers))
        same = kernel.source.replace(kernel.name, "")
        entry = first.setdefault(same, kernel.name)
        if entry is not kernel.name:
            kernel = evolve(kernel, name=entry, source="")
        kernels.append(kernel)
    return kernels


class KernelWriter:
    """Writes one kernel."""

    def __init__(self, body: KernelBody) -> None:
        self.body = body
        self.plan: LoopPlan = plan_loops(body)
        self.buffers = {b.name: b for b in body.buffers}
        self.arguments = _arguments(body.buffers)
        storage = {name: f"b{n}" for n, name in enumerate(self.arguments)}
        self.pointers = {b.name: self._pointer(b, storage) for b in body.buffers}
        self.emitter = Emitter(self.pointers, self.buffers)
        self.passes: Passes = self._passes()
        names = [s.name for s in body.statements if not isinstance(s, Store)]
        self.words = {name: f"m{n}" for n, name in enumerate(names)}

    def _pointer(self, buffer: Buffer, storage: dict[str, str]) -> str:
        first = next(b for b in self.body.buffers if b.storage == buffer.storage)
        name = storage[first.name]
        if first.layout.dtype is buffer.layout.dtype:
            return name
        return f"(({MEMORY[buffer.layout.dtype]}*){name})"

    def _passes(self) -> Passes:
        if self.body.serial or not self.body.inner:
            return Passes((self.body.statements,), ((), ()))
        return plan_passes(self.body.statements, self.buffers)

    def generate(self) -> GeneratedKernel:
        """The function's text and how to launch it."""
        body = self.body
        getattr(self, "_one_by_one" if self.plan.mode == "scalar" else f"_{self.plan.mode}")()
        name = f"cpp_{re.sub(r'[^0-9A-Za-z_]', '_', body.name)}"
        head = Writer()
        head.open(f'extern "C" int64_t {name}(void* const* B, const int64_t* S, int64_t begin, int64_t end) {{')
        head.line(f"constexpr int W = fb::register_bytes / {self.plan.lane_bytes};")
        head.line("(void)W;")
        head.line("int64_t failed = 0;")
        head.line("if (begin >= end) return 0;")
        for n, argument in enumerate(self.arguments):
            kind = MEMORY[self.buffers[argument].layout.dtype]
            head.line(f"{kind}* const b{n} = ({kind}*)B[{n}];")
        kinds = "".join(self._scalar(head, n, scalar) for n, scalar in enumerate(body.scalars))
        head.extend(self.emitter.scopes[0].lines)
        head.close("  return failed;\n}")
        source = head.text()
        return GeneratedKernel(
            name,
            source,
            self.arguments,
            tuple(self.buffers[a].layout.dtype for a in self.arguments),
            body.scalars,
            kinds,
            self.plan.extent,
            self.plan.grain,
            CHECKS if "failed" in source.replace("int64_t failed", "").replace("return failed", "") else (),
            {"origins": list(body.origins), "bytes": _traffic(body), "mode": self.plan.mode},
        )

    def _scalar(self, head: Writer, n: int, scalar: Expr | str) -> str:
        if isinstance(scalar, Expr):
            head.line(f"[[maybe_unused]] const int64_t n_{scalar.name} = S[{n}];")
            return "i"
        dtype = next(
            node.dtype
            for statement in self.body.statements
            for node in walk(*values(statement))
            if node.kind == "parameter" and node.args[0] == scalar
        )
        kind = held(dtype)
        value = f"__builtin_bit_cast(double, S[{n}])" if dtype.is_floating_point else f"S[{n}]"
        head.line(f"const {kind} p_{scalar} = ({kind}){value};")
        return "f" if dtype.is_floating_point else "i"

    # ---- modes ------------------------------------------------------------------------------------------------------------------
    def _flat(self) -> None:
        plan = self.plan
        assert plan.vector is not None
        x = plan.vector.symbol.name
        if not plan.outer:
            self._vector_body(1, [x], self.passes.inner[0])
            self._vector_loop("begin", "end", "body")
            return
        size = self._text(plan.vector.size)
        pieces = [("piece", self._pieces(plan.vector.size, plan.cut))] if plan.cut else []
        self._open_points(pieces)
        low, high = "0", size
        if plan.cut:
            low, high = "low", "high"
            self._line(f"const int64_t low = piece * {plan.cut}, high = fb::smaller(low + {plan.cut}, {size});")
        self._vector_body(2, [x], self.passes.inner[0])
        self._vector_loop(low, high, "body")
        self._close_points()

    def _tile(self) -> None:
        plan = self.plan
        assert plan.vector is not None and plan.tiled is not None
        x, y = plan.vector.symbol.name, plan.tiled.symbol.name
        self._open_points([("tile", self._pieces(plan.tiled.size, TILE))])
        rows = self._text(plan.tiled.size)
        self._line(f"const int64_t low = tile * {TILE}, high = fb::smaller(low + {TILE}, {rows});")
        self.emitter.depth_of[plan.tiled.symbol] = 2
        self.emitter.spelling[plan.tiled.symbol] = y
        self._vector_body(2, [x, y], self.passes.inner[0])
        size = self._text(plan.vector.size)
        self._line("int64_t at = 0;")
        self._line(f"for (; at + W <= {size}; at += W)")
        self._line(f"  for (int64_t {y} = low; {y} < high; ++{y}) body(fb::Full{{}}, at, {y});")
        self._line(f"if (at < {size})")
        self._line(f"  for (int64_t {y} = low; {y} < high; ++{y}) body(fb::first<W>({size} - at), at, {y});")
        self._close_points()

    def _rows(self) -> None:
        plan, em = self.plan, self.emitter
        assert plan.vector is not None
        self._open_points([])
        deep = 2 + len(plan.inner)
        kept = self._spill_rows()
        for number, statements in enumerate(self.passes.inner):
            self._outer_stores(number)
            accumulators = [Accumulator.of(s) for s in statements if isinstance(s, Reduce)]
            self._row_pass(number, statements, accumulators, deep, kept)
            for a in accumulators:
                name = f"f{number}_{self.words[a.name]}"
                self._line(f"const {held(a.result)} {name} = {a.fold(f'a{number}.{self.words[a.name]}')};")
                em.reduced[a.name] = Value(name, False)
                em.depth_of[a.name] = 1
        self._outer_stores(len(self.passes.inner))
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
        if accumulators:
            fields = " ".join(f"{a.lanes_type()} {self.words[a.name]} = {a.lanes_start()};" for a in accumulators)
            self._line(f"struct A{number} {{ {fields} }} a{number};")
        em.spilled = {n: self._spill_slot(n) for n, first in kept.items() if first < number}
        em.spill_writes = {n: self._spill_slot(n) for n, first in kept.items() if first == number}
        self._open_inner()
        x, size = plan.vector.symbol.name, self._text(plan.vector.size)
        body = f"body{number}"
        self._vector_body(deep, [x], statements, body, number if accumulators else None)
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
        unroll = 4 if work <= 16 else 2 if work <= 40 else 1
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
        kept: dict[Scalar, tuple[int, bool]],
    ) -> None:
        em, plan = self.emitter, self.plan
        assert plan.vector is not None
        self._slots(kept, number, False)
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
        self._vector_body(deep, [x], statements, f"body{number}")
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

    def _column_phase(self, number: int, kept: dict[Scalar, tuple[int, bool]]) -> None:
        """Once a column: stores after the passes so far, and values that the next pass needs at every row."""
        assert self.plan.vector is not None
        stores = self.passes.after[number]
        invariant = [node for node, (at, per_row) in kept.items() if at == number and not per_row]
        if not stores and not invariant:
            return
        x = self.plan.vector.symbol.name
        self._slots(kept, number, True)
        self._vector_body(2, [x], stores, f"column{number}", extra=invariant)
        self._vector_loop("low", "high", f"column{number}")

    def _slots(self, kept: dict[Scalar, tuple[int, bool]], number: int, phase: bool) -> None:
        em = self.emitter
        em.spilled = {
            n: self._column_slot(n, per_row)
            for n, (at, per_row) in kept.items()
            if at < number or (at == number and not per_row and not phase)
        }
        em.spill_writes = {
            n: self._column_slot(n, per_row) for n, (at, per_row) in kept.items() if at == number and per_row != phase
        }
        if phase:
            em.spilled = {n: slot for n, slot in em.spilled.items() if not kept[n][1]}

    def _scatter(self) -> None:
        plan = self.plan
        assert plan.vector is not None
        size = self._text(plan.vector.size)
        self._open_points([("block", self._pieces(plan.vector.size, plan.cut))])
        self._line(f"const int64_t low = block * {self.plan.cut}, high = fb::smaller(low + {self.plan.cut}, {size});")
        self._open_inner()
        x = plan.vector.symbol.name
        self._vector_body(2 + len(plan.inner), [x], self.passes.inner[0])
        self._vector_loop("low", "high", "body")
        self._close_inner()
        self._close_points()

    def _one_by_one(self) -> None:
        plan, em = self.plan, self.emitter
        self._open_points([])
        for number, statements in enumerate(self.passes.inner):
            self._outer_stores(number)
            accumulators = [Accumulator.of(s) for s in statements if not isinstance(s, Store)]
            for a in accumulators:
                self._line(f"{a.scalar_type()} a_{self.words[a.name]} = {a.scalar_start()};")
            self._open_inner()
            em.depth_of.update({s.name: 2 + len(plan.inner) for s in statements if isinstance(s, ScanStep)})
            em.push(2 + len(plan.inner))
            self._statements(statements, None)
            lines = em.pop()
            em.scope.lines.extend(lines)
            self._close_inner()
            for a in accumulators:
                text = f"fb::larger(a_{self.words[a.name]}.index, 0)" if a.is_argument else f"a_{self.words[a.name]}"
                em.reduced[a.name] = Value(f"({text})", False)
                em.depth_of[a.name] = 1
        self._outer_stores(len(self.passes.inner))
        self._close_points()

    # ---- loops ------------------------------------------------------------------------------------------------------------------
    def _line(self, text: str) -> None:
        self.emitter.scope.lines.append(text)

    def _block(self, head: str, lines: Sequence[str]) -> None:
        self._line(f"{head} {{")
        self.emitter.scope.lines.extend("  " + line for line in lines)
        self._line("}")

    def _text(self, e: Expr) -> str:
        text = self.emitter.text_of(e)
        return text if e.is_int or e.is_symbol else f"({text})"

    def _pieces(self, size: Expr, length: int | None) -> str:
        return self._text(ex.floor_div(size + ((length or 1) - 1), ex.Int(length or 1)))

    def _open_points(self, extra: list[tuple[str, str]]) -> None:
        """Enter the loop over the slice of the parallel extent."""
        em = self.emitter
        self.counters = [(axis.symbol.name, self._text(axis.size)) for axis in self.plan.outer] + extra
        em.push(1)
        for axis in self.plan.outer:
            em.depth_of[axis.symbol] = 1
            em.spelling[axis.symbol] = axis.symbol.name

    def _close_points(self) -> None:
        """Leave it; the axes are counted without a division a point."""
        lines = self.emitter.pop()
        counters = self.counters
        if not counters:
            self._block("", lines)
            return
        if len(counters) == 1:
            name = counters[0][0]
            self._block(f"for (int64_t {name} = begin; {name} < end; ++{name})", lines)
            return
        self._line(f"int64_t {', '.join(f'q_{name} = 0' for name, _ in counters)}, rest = begin;")
        for name, size in reversed(counters[1:]):
            self._line(f"q_{name} = rest % {size}; rest /= {size};")
        self._line(f"q_{counters[0][0]} = rest;")
        step = f"++q_{counters[0][0]};"
        for name, size in counters[1:]:
            step = f"if (++q_{name} == {size}) {{ q_{name} = 0; {step} }}"
        known = [f"const int64_t {name} = q_{name};" for name, _ in counters]
        self._block("for (int64_t point = begin; point < end; ++point)", [*known, step, *lines])

    def _open_inner(self, first: tuple[str, str] | None = None) -> None:
        em = self.emitter
        self.inner_bounds: list[tuple[str, str, str]] = []
        for n, axis in enumerate(self.plan.inner):
            name = axis.symbol.name
            em.depth_of[axis.symbol] = 2 + n
            em.spelling[axis.symbol] = name
            low, high = first if first is not None and n == 0 else ("0", self._text(axis.size))
            self.inner_bounds.append((name, low, high))
            em.push(2 + n)

    def _close_inner(self) -> None:
        for name, low, high in reversed(self.inner_bounds):
            lines = self.emitter.pop()
            self._block(f"for (int64_t {name} = {low}; {name} < {high}; ++{name})", lines)

    def _vector_loop(self, low: str, high: str, body: str) -> None:
        calls = [
            f"int64_t at = {low};",
            f"for (; at + W <= {high}; at += W) {body}(fb::Full{{}}, at);",
            f"if (at < {high}) {body}(fb::first<W>({high} - at), at);",
        ]
        self._block("", calls)

    def _vector_body(
        self,
        depth: int,
        variables: list[str],
        statements: Sequence[Statement],
        name: str = "body",
        accumulators: int | None = None,
        extra: Sequence[Scalar] = (),
    ) -> None:
        """A lambda that does ``statements`` for W lanes from ``variables[0]`` on."""
        em, vector = self.emitter, self.plan.vector
        assert vector is not None
        em.vector_axis, em.lambda_depth = vector.symbol, depth
        em.depth_of[vector.symbol] = depth
        em.spelling[vector.symbol] = variables[0]
        for reduced_name in em.lane_reduced:
            em.depth_of[reduced_name] = depth
        em.push(depth)
        for node in extra:
            em.emit(node)
        self._statements(statements, accumulators)
        lines = em.pop()
        parameters = "".join(f", const int64_t {v}" for v in variables)
        acc = f", A{accumulators}& a" if accumulators is not None else ""
        self._line(f"const auto {name} = [&](auto t{parameters}{acc}) __attribute__((always_inline)) {{")
        em.scope.lines.extend("  " + line for line in lines)
        self._line("};")

    # ---- statements ---------------------------------------------------------------------------------------------------------------
    def _statements(self, statements: Sequence[Statement], accumulators: int | None) -> None:
        """All values first, then all stores: a store may overwrite what a later statement reads at the same point."""
        em = self.emitter
        pending: list[str] = []
        for statement in statements:
            if isinstance(statement, Store):
                pending += self._store(statement)
            else:
                self._accumulate(statement, accumulators)
        em.scope.lines.extend(pending)

    def _accumulate(self, statement: Reduce | ScanStep, accumulators: int | None) -> None:
        em = self.emitter
        a = Accumulator.of(statement)
        value = em.emit(statement.value)
        lines = em.scope.lines
        if self.plan.mode == "rows":
            text = em.lanes(value, statement.value.dtype)
            lines.append(
                f"a.{self.words[a.name]} = {a.lanes_step(f'a.{self.words[a.name]}', text, self._row_position())};"
            )
            return
        if self.plan.mode == "columns":
            assert self.plan.vector is not None
            slot = f"c_{self.words[a.name]} + ({self.plan.vector.symbol.name} - low)"
            name = em.name()
            text = em.lanes(value, statement.value.dtype)
            lines.append(f"const auto {name} = {a.combine(f'fb::load<W>({slot}, t)', text)};")
            lines.append(f"fb::store({slot}, {name}, t);")
            if isinstance(statement, ScanStep):
                em.scope.values[_running(statement)] = Value(name, True)
            return
        target = f"a_{self.words[a.name]}"
        lines.append(f"{target} = {a.scalar_step(target, em.wide(value), self._row_position())};")
        if isinstance(statement, ScanStep):
            name = em.name()
            lines.append(f"const {held(a.dtype)} {name} = {target};")
            em.scope.values[_running(statement)] = Value(name, False)

    def _row_position(self) -> str:
        """The row-major position inside the inner axes."""
        position: Expr = ex.ZERO
        for axis in self.body.inner:
            position = position * axis.size + axis.symbol
        return self.emitter.text_of(position)

    def _store(self, store: Store) -> list[str]:
        em = self.emitter
        if store.condition is None:
            value = em.emit(store.value)
            return self._store_lines(store, value)
        test = em.emit(store.condition)
        if test.lanes:
            guard = em.name()
            em.scope.lines.append(f"const auto {guard} = fb::both<W>({em.predicate()}, {test.text});")
            em.push(em.scope.depth, guard, guard=True)
            value = em.emit(store.value)
            lines = self._store_lines(store, value)
            return em.pop() + lines
        em.push(em.scope.depth, None, guard=True)
        value = em.emit(store.value)
        lines = self._store_lines(store, value)
        return [f"if ({test.text}) {{", *("  " + line for line in em.pop() + lines), "}"]

    def _store_lines(self, store: Store, value: Value) -> list[str]:
        em = self.emitter
        pointer = self.pointers[store.buffer]
        dtype = self.buffers[store.buffer].layout.dtype
        mode = None if store.mode == "set" else {"add": "sum", "mul": "prod"}.get(store.mode, store.mode)
        combine = Accumulator("", mode, dtype, dtype).combine if mode is not None else None
        half = (
            ""
            if dtype not in (torch.bfloat16, torch.float16)
            else ("fb::round_bf16" if dtype is torch.bfloat16 else "fb::round_f16")
        )
        if not em.is_lanes(em.expr_needs(store.index) | em.needs(store.value)):
            at = f"{pointer} + ({em.text_of(store.index)})"
            text = em.wide(value)
            if combine is not None:
                text = f"({held(dtype)})({combine(f'fb::load1({at})', text)})"
            return [f"fb::store1({at}, {text});"]
        text, t = em.lanes(value, dtype), em.predicate()
        stride = em.lane_stride(store.index)
        if stride is ex.ONE:
            at = f"{pointer} + ({em.text_of(store.index)})"
            if combine is not None:
                text = f"{half}({combine(f'fb::load<W>({at}, {t})', text)})"
            return [f"fb::store({at}, {text}, {t});"]
        if combine is not None:
            raise AssertionError("a combining scatter needs separate lanes")
        return [f"fb::spread<W>({pointer}, {text}, {t}, [&](int k) {{ return {em.text_of(store.index, 'k')}; }});"]

    def _outer_stores(self, number: int) -> None:
        em = self.emitter
        for store in self.passes.after[number]:
            em.scope.lines.extend(self._store(store))

    # ---- values kept between passes ---------------------------------------------------------------------------------------------------
    def _inner_numel(self) -> Expr:
        return product([axis.size for axis in self.body.inner])

    def _spill_rows(self) -> dict[Scalar, int]:
        inner = {axis.symbol for axis in self.body.inner}
        last = self.body.inner[-1].symbol
        kept = kept_values(self.passes, lambda n: last in self.emitter.needs(n) and is_dear(n) and not self._unsafe(n))
        return self._scratch(kept, self._inner_numel(), inner)

    def _unsafe(self, node: Scalar) -> bool:
        return any(part.op == "check_bounds" for part in walk(node))

    def _scratch(self, kept: dict[Scalar, int], each: Expr, inner: set[Expr]) -> dict[Scalar, int]:
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

    def _spill_columns(self) -> dict[Scalar, tuple[int, bool]]:
        """Node -> (pass or phase that computes it, whether it differs from row to row)."""
        em, vector = self.emitter, self.plan.vector
        assert vector is not None
        inner = {axis.symbol for axis in self.body.inner}
        lanes = {vector.symbol, *em.lane_reduced}
        kept: dict[Scalar, tuple[int, bool]] = {}
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
                        kept.setdefault(node, (number, False))
                    continue
                stack.extend(node.children)
        for n, node in enumerate(kept):
            self.emitter.scopes[0].lines.append(f"alignas(64) {held(node.dtype)} k{n}[{self.plan.cut}];")
        self.slots = {node: f"k{n}" for n, node in enumerate(kept)}
        return kept

    def _column_slot(self, node: Scalar, per_row: bool) -> str:
        assert self.plan.vector is not None
        return f"{self.slots[node]} + ({self.plan.vector.symbol.name} - low)"


def _running(statement: ScanStep) -> Scalar:
    return reduced(statement.name, statement.dtype)


def _arguments(buffers: Sequence[Buffer]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for buffer in buffers:
        first.setdefault(buffer.storage, buffer.name)
    return tuple(first.values())


def _traffic(body: KernelBody) -> int:
    return sum(ex.hint(b.layout.numel) * b.layout.dtype.itemsize for b in body.buffers)
