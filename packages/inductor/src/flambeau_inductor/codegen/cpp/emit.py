"""Scalars -> values of the kernel IR, each defined in the outermost block where all it depends on is known.

In: scalar nodes. Out: expressions, and statements appended to the scopes of an ``Emitter``. A *scope* is a block of the kernel (function, row,
inner loops, lanes); a node that does not depend on a block's loop variable is computed outside that block, once. A *guard* (``masked``) is a
scope of its own: what reads memory inside it stays inside it. 64-bit positions whose range fits are held as int32 (``narrow.py``), and widened where
something else is made of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from attrs import define, field, frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...effects import DIVISIONS
from ...expr import Expr
from ...ir.scalar import Scalar, indirect_scalars
from ...kernel_ir import NO_TILES, Node, Statement, Tiles, Variable
from ...kernel_ir.strides import lane_step
from .dtypes import is_free
from .narrow import fits_int32
from .ops import reports_failure


@define(eq=False)
class Scope:
    """A block being written: its statements and what it has computed. ``mask`` replaces the lanes' in a guard."""

    depth: int
    mask: Variable | None = None
    guard: bool = False
    statements: list[Statement] = field(factory=list)
    values: dict[Scalar, Node] = field(factory=dict)


@frozen
class Slot:
    """Where a value lies between passes: an array of the kernel, and the index in it."""

    array: kir.Pointer
    index: Node


class Emitter:
    """Writes nodes into scopes. ``depth_of`` maps axis symbols and reduced names to the scope that knows them, ``places`` symbols to the variables
    that hold them; ``lanes`` is the mask of the loop over lanes that is being written."""

    def __init__(self, pointers: Mapping[str, kir.Pointer]) -> None:
        self.pointers = pointers
        self.scopes: list[Scope] = [Scope(0)]
        self.depth_of: dict[Expr | str, int] = {}
        self.places: dict[Expr, Variable] = {}
        self.vector_axis: Expr | None = None
        self.lanes: Variable | None = None
        self.tiled_axis: Expr | None = None
        self.row: Variable | None = None
        self.panels: list[kir.Panel] = []
        self.lane_reduced: set[str] = set()
        self.reduced: dict[str, Node] = {}
        self.columns: dict[str, Slot] = {}
        self.spilled: dict[Scalar, Slot] = {}
        self.spill_writes: dict[Scalar, Slot] = {}
        self.counter = 0
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

    def depth(self, needs: frozenset[Expr | str]) -> int:
        """The outermost scope where these are known."""
        return max((self.depth_of.get(n, 0) for n in needs), default=0)

    def tiles_of(self, needs: frozenset[Expr | str]) -> Tiles:
        """The tiles of a value with these needs: that of the lanes, where it differs from one to the next."""
        varies = any(n is self.vector_axis or n in self.lane_reduced for n in needs)
        return self.lanes.tiles if self.lanes is not None and varies else NO_TILES

    # ---- scopes -----------------------------------------------------------------------------------------------------------------
    @property
    def scope(self) -> Scope:
        """The innermost block."""
        return self.scopes[-1]

    def push(self, depth: int, mask: Variable | None = None, guard: bool = False) -> Scope:
        """Enter a block."""
        self.scopes.append(Scope(depth, mask, guard))
        return self.scope

    def pop(self) -> tuple[Statement, ...]:
        """Leave the innermost block and take its statements."""
        return tuple(self.scopes.pop().statements)

    def add(self, statement: Statement) -> None:
        """A statement of the innermost block."""
        self.scope.statements.append(statement)

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

    def mask(self) -> Variable | None:
        """The mask of the lanes here; None outside of them."""
        return next((s.mask for s in reversed(self.scopes) if s.mask is not None), self.lanes)

    def _some_lane(self) -> Node | None:
        """Inside a guard in lanes: whether it holds in any of them."""
        mask = self.mask()
        return kir.AnyLane(mask) if mask is not None and mask is not self.lanes and self.guarded() else None

    def guarded(self) -> bool:
        """True inside a guard."""
        return any(s.guard for s in self.scopes)

    # ---- nodes --------------------------------------------------------------------------------------------------------------------
    def emit(self, node: Scalar) -> Node:
        """Compute ``node``; the same variable is answered for the same node while its block lasts."""
        for scope in reversed(self.scopes):
            found = scope.values.get(node)
            if found is not None:
                return found
        if node.kind == "constant":
            return kir.constant(node.args[0], node.dtype)
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
        # A guard that is a block of its own sits in a shallower scope: what it needs must come before it.
        try:
            yield
        finally:
            self.scopes += hidden

    def _emit_here(self, node: Scalar) -> Node:
        found = self.scope.values.get(node)
        if found is not None:
            return found
        value: Node
        if node in self.spilled:
            value = self.load(self.spilled[node])
        else:
            value = getattr(self, f"_{node.kind}")(node)
            if node in self.spill_writes:
                self.add(self.kept(self.spill_writes[node], self.wide(value, node)))
        self.scope.values[node] = value
        return value

    def define(self, value: Node) -> Variable:
        """A new variable of this scope."""
        assert isinstance(value.dtype, torch.dtype)
        variable = Variable(self.name(), value.tiles, value.dtype)
        self.add(kir.Assign((variable,), value))
        return variable

    def wide(self, value: Node, node: Scalar) -> Node:
        """What ``node`` came to, in its own type."""
        return value if value.dtype is node.dtype else kir.Cast(value, node.dtype)

    def load(self, slot: Slot) -> Variable:
        """What lies in an array of the kernel."""
        return self.define(kir.Load(slot.array, slot.index, self.lanes if slot.index.tiles else None))

    def kept(self, slot: Slot, value: Node) -> kir.Store:
        """A value into an array of the kernel."""
        return kir.Store(slot.array, slot.index, value, self.lanes if slot.index.tiles else None)

    # ---- kinds ---------------------------------------------------------------------------------------------------------------------
    def _parameter(self, node: Scalar) -> Node:
        return Variable(f"p_{node.args[0]}", NO_TILES, node.dtype)

    def _reduced(self, node: Scalar) -> Node:
        # Its array has room for whole registers, and no mask is no call of which the compiler knows nothing.
        slot = self.columns[node.args[0]]
        return self.define(kir.Load(slot.array, slot.index))

    def index(self, e: Expr) -> kir.Index:
        """An index expression with what its symbols are."""
        names: list[tuple[Expr, Node]] = []
        for symbol in sorted(ex.free_symbols(e), key=lambda s: s.name):
            if symbol.definition is not None:
                names.append((symbol, kir.AsIndex(self.emit(symbol.definition))))
            else:
                names.append((symbol, self.places.get(symbol) or kir.position(f"n_{symbol.name}")))
        return kir.Index(e, tuple(names), frozenset().union(*(part.tiles for _, part in names)))

    def _load(self, node: Scalar) -> Node:
        pointer = self.pointers[node.buffer]
        index = self.index(node.index)
        if not index.tiles:
            some = self._some_lane()
            return self.define(kir.Load(pointer, index, some, some is not None))
        panel = self.panel(pointer, index, False)
        if panel is not None:
            return self.define(kir.Load(panel.array, panel.index, self.mask()))
        return self.define(kir.Load(pointer, index, self.mask()))

    def panel(self, pointer: kir.Pointer, index: kir.Index, stored: bool) -> Slot | None:
        """The panel for an access that runs along the tiled axis; None where there is none, or not every point is accessed."""
        e = index.expression
        if self.tiled_axis is None or self.guarded() or ex.coefficient(e, self.tiled_axis) is not ex.ONE:
            return None
        step = lane_step(index)
        if step is None or step is ex.ONE or not ex.free_symbols(step).isdisjoint({self.vector_axis, self.tiled_axis}):
            return None
        if any(symbol.definition is not None for symbol in ex.free_symbols(e)):
            return None
        (tile,) = index.tiles
        array = kir.Pointer(f"t{len(self.panels)}", pointer.dtype)
        self.panels.append(kir.Panel(array, pointer, index, self.index(step), stored))
        assert self.row is not None
        rows = kir.arith("mul", self.row, kir.BlockSize(tile))
        return Slot(array, kir.total(rows, kir.Lanes(tile, inside=False)))

    def _index(self, node: Scalar) -> Node:
        index = self.index(node.index)
        narrow = bool(index.tiles) and node.dtype is torch.int64 and fits_int32(node)
        return self.define(kir.Cast(index, torch.int32 if narrow else node.dtype))

    def _masked(self, node: Scalar) -> Node:
        condition, body, other = node.args
        test = self.emit(condition)
        otherwise = self.wide(self.emit(other), other)
        if not test.tiles:
            return self._branch(node, test, otherwise)
        mask = self.mask()
        assert mask is not None
        guard = Variable(self.name(), mask.tiles, torch.bool)
        self.add(kir.Assign((guard,), kir.All((mask, test), mask.tiles)))
        self.push(self.scope.depth, guard, guard=True)
        inside = self.wide(self.emit(body), body)
        guarded = self.pop()
        self.scope.statements.extend(guarded)
        return self.define(kir.Op("where", (test, inside, otherwise), node.dtype, mask.tiles))

    def _branch(self, node: Scalar, test: Node, otherwise: Node) -> Node:
        _, body, _ = node.args
        tiles = self.tiles_of(self.needs(node))
        result = Variable(self.name(), tiles, node.dtype)
        self.add(kir.Assign((result,), _along(otherwise, tiles)))
        self.push(self.scope.depth, guard=True)
        inside = self.wide(self.emit(body), body)
        self.add(kir.Update((result,), _along(inside, tiles)))
        self.add(kir.If(test, self.pop()))
        return result

    def _op(self, node: Scalar) -> Node:
        name = node.op
        if name in ("to_dtype", "bitcast"):
            return self._convert(node)
        if name == "check_bounds":
            return self._check(node)
        operands = [part for part in node.args[1:] if isinstance(part, Scalar)]
        values = [self.emit(part) for part in operands]
        tiles: Tiles = NO_TILES.union(*(value.tiles for value in values))
        narrow = bool(tiles) and _stays_narrow(node, operands, values)
        parts = [
            _narrowed(value) if narrow and part.dtype is torch.int64 else self.wide(value, part)
            for value, part in zip(values, operands, strict=True)
        ]
        dtype = torch.int32 if narrow and node.dtype is torch.int64 else node.dtype
        fails = bool(tiles) and reports_failure(name, operands[0].dtype)
        return self.define(kir.Op(name, tuple(parts), dtype, tiles, self.mask() if fails else None))

    def _convert(self, node: Scalar) -> Node:
        operand = node.args[1]
        value = self.emit(operand)
        if node.op == "bitcast":
            value = self.wide(value, operand)
        assert isinstance(value.dtype, torch.dtype)
        converted = kir.Op(node.op, (value,), node.dtype, value.tiles)
        free = node.op == "to_dtype" and is_free(value.dtype, node.dtype)
        return converted if free else self.define(converted)

    def _check(self, node: Scalar) -> Node:
        _, position, size = node.args
        value, limit = self.wide(self.emit(position), position), self.emit(size)
        if not isinstance(value, Variable):
            value = self.define(value)
        mask = self.mask() if value.tiles else self._some_lane()
        self.add(kir.Check(value, limit, () if mask is None else (mask,)))
        return value


def _along(value: Node, tiles: Tiles) -> Node:
    return value if value.tiles == tiles else kir.Broadcast(value, tiles)


def _stays_narrow(node: Scalar, operands: list[Scalar], values: list[Node]) -> bool:
    """Whether an op on 64-bit integers works on what is held as int32, and its result is held so."""
    found = [(part, value) for part, value in zip(operands, values, strict=True) if part.dtype is torch.int64]
    narrow = [value.dtype is torch.int32 for _, value in found]
    if not any(narrow):
        return False
    whole = all(
        fits_int32(part) and (is_narrow or not value.tiles)
        for (part, value), is_narrow in zip(found, narrow, strict=True)
    )
    return whole and (node.dtype is not torch.int64 or fits_int32(node))


def _narrowed(value: Node) -> Node:
    return value if value.dtype is torch.int32 else kir.Cast(value, torch.int32)
