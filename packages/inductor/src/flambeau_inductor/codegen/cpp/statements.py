"""The statements of a kernel as C++ lines: accumulate, store, one lane or many.

In: statements of a ``KernelBody`` and the loop plan. Out: lines in the emitter's innermost scope. ``loops.py`` builds the loops
around them, ``generate.py`` chooses which.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import expr as ex
from ...expr import Expr
from ...ir.kernel import KernelBody, Reduce, ScanStep, Statement, Store
from ...ir.layout import Buffer
from ...ir.scalar import Scalar, reduced
from ...ops.dtypes import HALVES
from .dtypes import MEMORY, held
from .emit import Emitter, Value
from .layout import LoopPlan, mode_of, plan_loops
from .passes import Passes, plan_passes
from .reduce import Accumulator
from .running import without_doubles


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

    def _line(self, text: str) -> None:
        self.emitter.scope.lines.append(text)

    def _lines(self, lines: Sequence[str]) -> None:
        self.emitter.scope.lines.extend(lines)

    def _block(self, head: str, lines: Sequence[str]) -> None:
        self._line(f"{head} {{")
        self.emitter.scope.lines.extend("  " + line for line in lines)
        self._line("}")

    def _text(self, e: Expr) -> str:
        text = self.emitter.text_of(e)
        return text if e.is_int or e.is_symbol else f"({text})"

    def _statements(self, statements: Sequence[Statement]) -> None:
        """All values first, then all stores: a store may overwrite what a later statement reads at the same point."""
        em = self.emitter
        pending: list[str] = []
        for statement in statements:
            if isinstance(statement, Store):
                pending += self._store(statement)
            else:
                self._accumulate(statement)
        em.scope.lines.extend(pending)

    def _accumulate(self, statement: Reduce | ScanStep) -> None:
        em = self.emitter
        a = Accumulator.of(statement)
        value = em.emit(statement.value)
        lines = em.scope.lines
        if self.plan.mode == "rows" and isinstance(statement, ScanStep):
            lines.append(f"fb::store({self._run_slot(statement)}, {em.lanes(value, statement.value.dtype)}, t);")
            return
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

    def _run_slot(self, statement: ScanStep) -> str:
        """Where the values of a scan along a row lie, those of one block of it, and then what they come to."""
        assert self.plan.vector is not None
        return f"r_{self.words[statement.name]} + ({self.plan.vector.symbol.name} - low)"

    def _row_position(self) -> str:
        """The row-major position inside the inner axes."""
        position: Expr = ex.ZERO
        for axis in self.body.inner:
            position = position * axis.size + axis.symbol
        return self.emitter.text_of(position)

    def _store(self, store: Store) -> list[str]:
        em = self.emitter
        value = em.emit(store.value)
        pointer = self.pointers[store.buffer]
        dtype = self.buffers[store.buffer].layout.dtype
        mode = None if store.mode == "set" else {"add": "sum", "mul": "prod"}.get(store.mode, store.mode)
        combine = Accumulator("", mode, dtype, dtype).combine if mode is not None else None
        assert combine is None or dtype not in HALVES, "sums in a narrow type are the library's"
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
                text = f"({combine(f'fb::load<W>({at}, {t})', text)})"
            return [f"fb::store({at}, {text}, {t});"]
        assert combine is None, "a combining scatter needs separate lanes"
        panel = em.panel(store.buffer, store.index, True)
        if panel is not None:
            return [f"fb::store({panel} + row * W, {text}, {t});"]
        return [f"fb::spread<W>({pointer}, {text}, {t}, [&](int k) {{ return {em.text_of(store.index, 'k')}; }});"]


def _running(statement: ScanStep) -> Scalar:
    return reduced(statement.name, statement.dtype)


def _arguments(buffers: Sequence[Buffer]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for buffer in buffers:
        first.setdefault(buffer.storage, buffer.name)
    return tuple(first.values())
