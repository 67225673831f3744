"""Scalars -> C++ statements, each placed in the outermost block where all it depends on is known.

In: scalar nodes. Out: lines appended to the scopes of an ``Emitter``. A *scope* is a C++ block (function, row, inner loops, vector
body); a node that does not depend on a block's loop variable is computed outside that block, once. A *guard* (``masked``) is a
scope of its own: what reads memory inside it stays inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from attrs import define, field, frozen

from ... import expr as ex
from ...effects import DIVISIONS
from ...expr import Expr
from ...ir.layout import Buffer
from ...ir.scalar import Scalar, indirect_scalars
from ...ops.dtypes import HALVES
from .dtypes import held, literal, vector
from .narrow import fits_int32
from .ops import op_text, reports_failure


@frozen
class Value:
    """The name of a computed value; ``lanes`` when it is a vector; ``narrow`` when an int64 is held as int32."""

    text: str
    lanes: bool
    narrow: bool = False


@define(eq=False)
class Scope:
    """A block being written: its lines and what it has computed. ``predicate`` replaces the lanes' predicate in a guard."""

    depth: int
    predicate: str | None = None
    guard: bool = False
    lines: list[str] = field(factory=list)
    values: dict[Scalar, Value] = field(factory=dict)


@frozen
class Panel:
    """A block of W x W elements on the stack: the lanes of each of W rows of the tile side by side, where memory has the rows side
    by side and the lanes ``step`` apart. ``index`` is where the block's first element lies; ``stored`` when memory is written."""

    name: str
    buffer: str
    index: Expr
    step: Expr
    stored: bool


class Emitter:
    """Writes nodes into scopes. ``depth_of`` maps axis symbols and reduced names to the scope that knows them."""

    def __init__(self, pointers: dict[str, str], buffers: dict[str, Buffer]) -> None:
        self.pointers = pointers
        self.buffers = buffers
        self.scopes: list[Scope] = [Scope(0)]
        self.depth_of: dict[Expr | str, int] = {}
        self.spelling: dict[Expr, str] = {}
        self.vector_axis: Expr | None = None
        self.tiled_axis: Expr | None = None
        self.panels: list[Panel] = []
        self.lambda_depth = 1 << 30
        self.lane_reduced: set[str] = set()
        self.reduced: dict[str, Value] = {}
        self.columns: dict[str, str] = {}
        self.spilled: dict[Scalar, str] = {}
        self.spill_writes: dict[Scalar, str] = {}
        self.counter = 0
        #: Whether the kernel may report an index out of range, or a division by zero.
        self.may_fail = False
        self._needs: dict[Scalar, frozenset[Expr | str]] = {}
        self._memory: dict[Scalar, bool] = {}

    # ---- what a node depends on ---------------------------------------------------------------------------------------------
    def needs(self, node: Scalar) -> frozenset[Expr | str]:
        """Axis symbols and reduced names below ``node``."""
        found = self._needs.get(node)
        if found is None:
            parts: set[Expr | str] = set()
            for child in node.children + indirect_scalars(node):
                parts |= self.needs(child)
            if node.kind in ("load", "index"):
                parts |= {s for s in ex.free_symbols(node.index) if s.definition is None}
            elif node.kind == "reduced":
                parts.add(node.args[0])
            found = self._needs[node] = frozenset(parts)
        return found

    def touches_memory(self, node: Scalar) -> bool:
        """True when evaluating the node reads memory or can report an error."""
        found = self._memory.get(node)
        if found is None:
            found = node.kind == "load" or node.op == "check_bounds" or node.op in DIVISIONS
            found = found or any(self.touches_memory(child) for child in node.children + indirect_scalars(node))
            self._memory[node] = found
        return found

    def expr_needs(self, e: Expr) -> frozenset[Expr | str]:
        """The same for an index expression."""
        parts: set[Expr | str] = set()
        for symbol in ex.free_symbols(e):
            parts |= self.needs(symbol.definition) if symbol.definition is not None else {symbol}
        return frozenset(parts)

    def depth(self, needs: frozenset[Expr | str]) -> int:
        """The outermost scope where these are known."""
        return max((self.depth_of.get(n, 0) for n in needs), default=0)

    def is_lanes(self, needs: frozenset[Expr | str]) -> bool:
        """True when a value with these needs differs from lane to lane."""
        return self.vector_axis is not None and any(n is self.vector_axis or n in self.lane_reduced for n in needs)

    # ---- scopes -----------------------------------------------------------------------------------------------------------------
    @property
    def scope(self) -> Scope:
        """The innermost block."""
        return self.scopes[-1]

    def push(self, depth: int, predicate: str | None = None, guard: bool = False) -> Scope:
        """Enter a block."""
        self.scopes.append(Scope(depth, predicate, guard))
        return self.scope

    def pop(self) -> list[str]:
        """Leave the innermost block and take its lines."""
        return self.scopes.pop().lines

    @contextmanager
    def at(self, depth: int) -> Iterator[None]:
        """Write into the scope of ``depth`` for a while."""
        keep = next(n for n, s in enumerate(self.scopes) if s.depth >= depth or n == len(self.scopes) - 1)
        hidden, self.scopes = self.scopes[keep + 1 :], self.scopes[: keep + 1]
        try:
            yield
        finally:
            self.scopes += hidden

    def name(self) -> str:
        """A fresh variable."""
        self.counter += 1
        return f"v{self.counter}"

    def predicate(self) -> str:
        """The predicate of the lanes here."""
        return next((s.predicate for s in reversed(self.scopes) if s.predicate is not None), "t")

    def guarded(self) -> bool:
        """True inside a guard."""
        return any(s.guard for s in self.scopes)

    # ---- nodes --------------------------------------------------------------------------------------------------------------------
    def emit(self, node: Scalar) -> Value:
        """Compute ``node``; the same name is answered for the same node while its block lasts."""
        for scope in reversed(self.scopes):
            found = scope.values.get(node)
            if found is not None:
                return found
        if node.kind == "constant":
            return Value(literal(node.args[0], node.dtype), False, False)
        if node.kind == "reduced" and node.args[0] in self.reduced:
            return self.reduced[node.args[0]]
        needs = self.needs(node)
        depth = self.depth(needs)
        movable = not (self.touches_memory(node) and self.guarded())
        if depth < self.scope.depth and movable:
            with self.at(depth):
                return self._emit_here(node)
        if self.scope.guard and movable:
            with self._outside_guards():
                return self._emit_here(node)
        return self._emit_here(node)

    @contextmanager
    def _outside_guards(self) -> Iterator[None]:
        keep = next(n for n, s in enumerate(self.scopes) if s.guard)
        hidden, self.scopes = self.scopes[keep:], self.scopes[:keep]
        # A guard that is a block of its own sits in a shallower scope's text: what it needs must come before it.
        try:
            yield
        finally:
            self.scopes += hidden

    def _emit_here(self, node: Scalar) -> Value:
        found = self.scope.values.get(node)
        if found is not None:
            return found
        if node in self.spilled:
            name = self.name()
            self.scope.lines.append(f"const auto {name} = fb::load<W>({self.spilled[node]}, t);")
            value = Value(name, True)
        else:
            value = getattr(self, f"_{node.kind}")(node)
            if node in self.spill_writes:
                self.scope.lines.append(f"fb::store({self.spill_writes[node]}, {self.lanes(value, node.dtype)}, t);")
        self.scope.values[node] = value
        return value

    def define(self, text: str, dtype: torch.dtype, lanes: bool, narrow: bool = False) -> Value:
        """A new variable of this scope."""
        name = self.name()
        kind = "auto" if lanes else ("int32_t" if narrow else held(dtype))
        self.scope.lines.append(f"const {kind} {name} = {text};")
        return Value(name, lanes, narrow)

    def lanes(self, value: Value, dtype: torch.dtype) -> str:
        """The value as a vector of its full type."""
        if value.lanes:
            return f"fb::cast<int64_t>({value.text})" if value.narrow else value.text
        return f"{vector(dtype)}({value.text})"

    def wide(self, value: Value) -> str:
        """The value with int64 held as int64."""
        if not value.narrow:
            return value.text
        return f"fb::cast<int64_t>({value.text})"

    # ---- kinds ---------------------------------------------------------------------------------------------------------------------
    def _parameter(self, node: Scalar) -> Value:
        return Value(self.spelling_of_parameter(node), False)

    def spelling_of_parameter(self, node: Scalar) -> str:
        """The variable of a scalar graph input."""
        return f"p_{node.args[0]}"

    def _reduced(self, node: Scalar) -> Value:
        return self.define(f"fb::load<W>({self.columns[node.args[0]]}, t)", node.dtype, True)

    def text_of(self, e: Expr, lane: str | None = None) -> str:
        """An index expression; ``lane`` names the lane variable where lanes differ."""
        for symbol in sorted(ex.free_symbols(e), key=lambda s: s.name):
            if symbol.definition is not None:
                self.spelling[symbol] = self._position(symbol, lane)
        spelled = dict(self.spelling)
        if lane is not None and self.vector_axis is not None:
            spelled[self.vector_axis] = f"({self.spelling[self.vector_axis]} + {lane})"
        return ex.render(e, "cpp", lambda s: spelled.get(s, f"n_{s.name}"))

    def _position(self, symbol: Expr, lane: str | None) -> str:
        value = self.emit(symbol.definition)
        return f"(int64_t){value.text}[{lane}]" if value.lanes else f"(int64_t){value.text}"

    def _load(self, node: Scalar) -> Value:
        pointer = self.pointers[node.buffer]
        index = node.index
        if not self.is_lanes(self.needs(node)):
            at = self.text_of(index)
            if self.predicate() != "t" and self.guarded():
                zero = f"{held(node.dtype)}(0)"
                return self.define(
                    f"{self.predicate()}.bits ? fb::load1({pointer} + ({at})) : {zero}", node.dtype, False
                )
            return self.define(f"fb::load1({pointer} + ({at}))", node.dtype, False)
        t = self.predicate()
        stride = self.lane_stride(index)
        if stride is ex.ONE:
            return self.define(f"fb::load<W>({pointer} + ({self.text_of(index)}), {t})", node.dtype, True)
        panel = self.panel(node.buffer, index, False)
        if panel is not None:
            return self.define(f"fb::load<W>({panel} + row * W, {t})", node.dtype, True)
        return self.define(self._gather(pointer, index, stride, t), node.dtype, True)

    def _gather(self, pointer: str, index: Expr, stride: Expr | None, t: str) -> str:
        if stride is not None:
            step = self.text_of(stride)
            return f"fb::gather<W>({pointer} + ({self.text_of(index)}), {t}, [&](int k) {{ return k * ({step}); }})"
        return f"fb::gather<W>({pointer}, {t}, [&](int k) {{ return {self.text_of(index, 'k')}; }})"

    def panel(self, buffer: str, index: Expr, stored: bool) -> str | None:
        """The panel for an access that runs along the tiled axis; None where there is none, or not every point is accessed."""
        if self.tiled_axis is None or self.guarded() or ex.coefficient(index, self.tiled_axis) is not ex.ONE:
            return None
        step = self.lane_stride(index)
        if step is None or not ex.free_symbols(step).isdisjoint({self.vector_axis, self.tiled_axis}):
            return None
        if any(symbol.definition is not None for symbol in ex.free_symbols(index)):
            return None
        name = f"t{len(self.panels)}"
        self.panels.append(Panel(name, buffer, index, step, stored))
        return name

    def lane_stride(self, index: Expr) -> Expr | None:
        """The constant step of ``index`` from lane to lane; None when there is none."""
        assert self.vector_axis is not None
        for symbol in ex.free_symbols(index):
            if symbol.definition is not None and self.is_lanes(self.needs(symbol.definition)):
                return None
        return ex.coefficient(index, self.vector_axis)

    def _index(self, node: Scalar) -> Value:
        e = node.index
        narrow = node.dtype is torch.int64 and fits_int32(node)
        kind = "int32_t" if narrow else held(node.dtype)
        if not self.is_lanes(self.needs(node)):
            text = f"({held(node.dtype)})({self.text_of(e)})"
            return self.define(text, node.dtype, False)
        stride = self.lane_stride(e)
        if stride is None:
            text = f"fb::lanes_i64<W>([&](int k) {{ return (int64_t)({self.text_of(e, 'k')}); }})"
            text = text if kind == "int64_t" else f"fb::cast<{kind}>({text})"
        elif stride is ex.ONE:
            text = f"fb::iota<{kind}, W>(({kind})({self.text_of(e)}))"
        else:
            steps = f"fb::iota<{kind}, W>(({kind})0) * fb::Vec<{kind}, W>(({kind})({self.text_of(stride)}))"
            text = f"fb::Vec<{kind}, W>(({kind})({self.text_of(e)})) + {steps}"
        return self.define(text, node.dtype, True, narrow)

    def _masked(self, node: Scalar) -> Value:
        condition, body, other = node.args
        test = self.emit(condition)
        otherwise = self.emit(other)
        lanes = self.is_lanes(self.needs(node))
        if not test.lanes:
            return self._branch(node, test, otherwise, lanes)
        guard = self.name()
        self.scope.lines.append(f"const auto {guard} = fb::both<W>({self.predicate()}, {test.text});")
        self.push(self.scope.depth, guard, guard=True)
        inside = self.emit(body)
        lines = self.pop()
        self.scope.lines.extend(lines)
        chosen = f"fb::select({test.text}, {self.lanes(inside, body.dtype)}, {self.lanes(otherwise, other.dtype)})"
        return self.define(chosen, node.dtype, True)

    def _branch(self, node: Scalar, test: Value, otherwise: Value, lanes: bool) -> Value:
        _, body, other = node.args
        name = self.name()
        kind = vector(node.dtype) if lanes else held(node.dtype)
        start = self.lanes(otherwise, other.dtype) if lanes else otherwise.text
        self.scope.lines.append(f"{kind} {name} = {start};")
        self.push(self.scope.depth, None, guard=True)
        inside = self.emit(body)
        lines = self.pop()
        self.scope.lines.append(f"if ({test.text}) {{")
        self.scope.lines.extend("  " + line for line in lines)
        self.scope.lines.append(f"  {name} = {self.lanes(inside, body.dtype) if lanes else self.wide(inside)};")
        self.scope.lines.append("}")
        return Value(name, lanes)

    def _op(self, node: Scalar) -> Value:
        name = node.op
        if name in ("to_dtype", "bitcast"):
            return self._convert(node)
        if name == "check_bounds":
            return self._check(node)
        operands = [part for part in node.args[1:] if isinstance(part, Scalar)]
        values = [self.emit(part) for part in operands]
        lanes = any(v.lanes for v in values)
        wanted = [n for n, part in enumerate(operands) if part.dtype is torch.int64]
        keep_narrow = bool(wanted) and all(
            fits_int32(operands[n]) and (values[n].narrow or not values[n].lanes) for n in wanted
        )
        keep_narrow = keep_narrow and lanes and any(values[n].narrow for n in wanted)
        result_narrow = keep_narrow and node.dtype is torch.int64
        if result_narrow and not fits_int32(node):
            keep_narrow = result_narrow = False
        if name == "truediv" and lanes and not values[1].lanes and node.dtype is torch.float32:
            return self.define(f"fb::divide_all({values[0].text}, {values[1].text})", node.dtype, True)
        texts = [self._operand(v, part, lanes, keep_narrow) for v, part in zip(values, operands, strict=True)]
        domain = operands[-1].dtype if name == "where" else operands[0].dtype
        self.may_fail = self.may_fail or reports_failure(name, domain)
        text = op_text(name, texts, domain, self.predicate() if lanes else None)
        return self.define(text, node.dtype, lanes, result_narrow)

    def _operand(self, value: Value, node: Scalar, lanes: bool, narrow: bool) -> str:
        if not lanes:
            return self.wide(value)
        if node.dtype is torch.int64 and narrow:
            return value.text if value.lanes else f"fb::Vec<int32_t, W>((int32_t)({value.text}))"
        return self.lanes(value, node.dtype)

    def _convert(self, node: Scalar) -> Value:
        operand = node.args[1]
        value = self.emit(operand)
        source, target = operand.dtype, node.dtype
        if node.op == "bitcast":
            return self.define(f"fb::bitcast<{held(target)}>({self.wide(value)})", target, value.lanes)
        text = value.text
        if held(source) != held(target) or value.narrow:
            text = f"fb::cast<{held(target)}>({text})"
        if target in HALVES and source is not target:
            text = f"fb::round_{'bf16' if target is torch.bfloat16 else 'f16'}({text})"
        return value if text == value.text else self.define(text, target, value.lanes)

    def _check(self, node: Scalar) -> Value:
        _, position, size = node.args
        value, limit = self.emit(position), self.emit(size)
        self.may_fail = True
        if value.lanes:
            wide = self.define(self.lanes(value, torch.int64), torch.int64, True)
            test = f"fb::outside({wide.text}, {limit.text}, {self.predicate()})"
        else:
            wide = Value(self.wide(value), False)
            test = f"fb::outside({wide.text}, {limit.text})"
            if self.guarded() and self.predicate() != "t":
                test = f"{self.predicate()}.bits && {test}"
        leave = "{ failed = 1; return; }" if self.scope.depth >= self.lambda_depth else "return 1;"
        self.scope.lines.append(f"if (__builtin_expect({test}, 0)) {leave}")
        return wide
