"""The kernel IR as Triton text: the only module that spells a statement.

In: blocks of ``kernel_ir``. Out: lines, and the names of the support functions that they call.
Each expression comes with the binding strength of its outermost operator, as Python's: 0 comparison, 1 ``|``, 2 ``&``, 3 sum, 4 product, 5 atom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flambeau_runtime.triton_kernels import WAIT

from ... import expr as ex
from ... import kernel_ir as kir
from ...kernel_ir import Layout, Node, Statement, Tiles
from ...ops.dtypes import EIGHTHS
from .function import PROGRAM
from .ops import Operation, op_text
from .types import number, type_text

_COMPARISON, _OR, _AND, _SUM, _PRODUCT, _ATOM = range(6)
_SYMBOLS = {
    "add": ("+", _SUM), "sub": ("-", _SUM), "mul": ("*", _PRODUCT), "floordiv": ("//", _PRODUCT), "mod": ("%", _PRODUCT),
    "or": ("|", _OR), "and": ("&", _AND),
    "lt": ("<", _COMPARISON), "le": ("<=", _COMPARISON), "gt": (">", _COMPARISON), "ge": (">=", _COMPARISON),
    "eq": ("==", _COMPARISON), "ne": ("!=", _COMPARISON),
}  # fmt: skip
#: (op, op of its left operand): in parentheses for the reader.
_GROUPED = frozenset({("mul", "mod"), ("mul", "floordiv"), ("add", "sub")})
_INDENT = "    "

Spelled = tuple[str, int]


class Printer:
    """Writes blocks of tiles in the order ``tiles``, positions of ``index_bits``. ``helpers`` receives what the lines call."""

    def __init__(self, tiles: Sequence[str], index_bits: int, helpers: set[str] | None = None) -> None:
        self.tiles = tuple(tiles)
        self.index_bits = index_bits
        self.helpers: set[str] = set() if helpers is None else helpers
        self.asserts = False

    # -- statements ------------------------------------------------------------------------------------------------------

    def lines(self, block: Iterable[Statement]) -> list[str]:
        """A block."""
        found: list[str] = []
        for statement in block:
            _STATEMENTS[type(statement)](self, statement, found)
        return found

    def _indented(self, block: Iterable[Statement]) -> list[str]:
        return [_INDENT + line for line in self.lines(block)]

    def _assign(self, s: kir.Assign | kir.Update, found: list[str]) -> None:
        names = ", ".join(target.name for target in s.targets)
        value = s.value
        operand = value.value if isinstance(value, kir.Cast) else value.left if isinstance(value, kir.Arith) else None
        if not isinstance(operand, kir.Reduce):
            found.append(f"{names} = {self.text(value)}")
            return
        # A reduction has a line of its own; what is done to its result follows.
        if operand.spare:
            operands = ", ".join(part.name for part in operand.operands)
            found.append(f"{operand.spare}, {names} = tl.reduce(({operands}), 1, {self._need(operand.function)})")
        else:
            found.append(f"{names} = {self.text(operand)}")
        if isinstance(value, kir.Cast):
            found.append(f"{names} = {names}{'[:, None]' if operand.spare else ''}.to({type_text(value.dtype)})")
        elif isinstance(value, kir.Arith):
            found.append(f"{names} = {names} {_SYMBOLS[value.op][0]} {self.text(value.right)}")

    def _alias(self, s: kir.Alias, found: list[str]) -> None:
        found.append(f"{s.pointer.name} = {s.source.name}.to(tl.pointer_type({type_text(s.pointer.dtype)}))")

    def _store(self, s: kir.Store, found: list[str]) -> None:
        parts = [self._place(s), self.text(s.value)]
        parts += [self.text(s.mask)] if s.mask is not None else []
        parts += ["cache_modifier='.cs'"] if s.streamed else []
        found.append(f"tl.store({', '.join(parts)})")

    def _atomic(self, s: kir.Atomic, found: list[str]) -> None:
        mask = f", mask={self.text(s.mask)}" if s.mask is not None else ""
        found.append(f"tl.atomic_{s.mode}({self._place(s)}, {self.text(s.value)}{mask}, sem='relaxed')")

    def _check(self, s: kir.Check, found: list[str]) -> None:
        self.asserts = True
        legal = f"(({self.text(s.position)} >= 0) & ({self.text(s.position)} < {self.text(s.size)}))"
        condition = " | ".join([legal, *(f"({self.text(part)} == 0)" for part in s.masks)])
        found.append(f"tl.device_assert({condition}, 'index out of range')")

    def _if(self, s: kir.If, found: list[str], word: str = "if") -> None:
        found += [f"{word} {self.text(s.condition)}:", *self._indented(s.then)]
        if len(s.orelse) == 1 and isinstance(s.orelse[0], kir.If):
            self._if(s.orelse[0], found, "elif")
        elif s.orelse:
            found += ["else:", *self._indented(s.orelse)]

    def _for(self, s: kir.For, found: list[str]) -> None:
        if isinstance(s.step, kir.Number):
            found.append(f"for {s.variable.name} in range(0, {self.text(s.stop)}):")
        else:
            found.append(f"for {s.variable.name} in tl.range(0, {self.text(s.stop)}, {self.text(s.step)}):")
        found += self._indented(s.body)

    def _pipelined(self, s: kir.Pipelined, found: list[str]) -> None:
        if_more = f"{_INDENT}if {s.variable.name} + 1 < {s.count}:"
        found += [
            f"for {s.variable.name} in tl.static_range({s.count}):",
            if_more,
            *(_INDENT + line for line in self._indented(s.ahead)),
            *self._indented(s.body),
            if_more,
            *(f"{_INDENT * 2}{target.name} = {source.name}" for target, source in s.moves),
        ]

    def _run(self, s: kir.Run, found: list[str]) -> None:
        arguments = (part.name if isinstance(part, kir.Pointer) else self.text(part) for part in s.arguments)
        found.append(f"{s.function}({', '.join(arguments)})")

    # -- expressions -----------------------------------------------------------------------------------------------------

    def text(self, node: Node) -> str:
        """An expression that stands alone."""
        return _NODES[type(node)](self, node)[0]

    def _inner(self, node: Node, at_least: int = _ATOM) -> str:
        """An operand, in parentheses where it binds less strongly. What an index expression comes to is not looked at."""
        text, strength = _NODES[type(node)](self, node)
        return text if strength >= at_least and not isinstance(node, kir.Index) else f"({text})"

    def _need(self, function: str) -> str:
        self.helpers.add(function)
        return function

    def _place(self, s: kir.Load | kir.Store | kir.Atomic) -> str:
        return f"{s.pointer.name} + ({self.text(s.index)})"

    def shape(self, tiles: Tiles, layout: Layout | None) -> str:
        """The shape of a block."""
        if layout is None:
            return "[" + ", ".join(_block(p) if p in tiles else "1" for p in self.tiles) + "]"
        return "[" + ", ".join(map(_extent, layout)) + "]"

    def _variable(self, n: kir.Variable) -> Spelled:
        return n.name, _ATOM

    def _number(self, n: kir.Number) -> Spelled:
        return number(n.value), _ATOM

    def _block_size(self, n: kir.BlockSize) -> Spelled:
        return _block(n.tile), _ATOM

    def _program(self, n: kir.Program) -> Spelled:
        return (f"({PROGRAM} - {n.first.name})" if n.first is not None else PROGRAM), _ATOM

    def _lanes(self, n: kir.Lanes) -> Spelled:
        text = f"tl.arange(0, {_extent(kir.Extent(n.tile, n.over))})"
        if len(self.tiles) > 1:
            text += "[:, None]" if self.tiles[0] == n.tile else "[None, :]"
        return text, _ATOM

    def _index(self, n: kir.Index) -> Spelled:
        names = {symbol: self._inner(node) for symbol, node in n.names}
        return ex.render(n.expression, "triton", names.__getitem__), _ATOM

    def _arith(self, n: kir.Arith) -> Spelled:
        symbol, strength = _SYMBOLS[n.op]
        grouped = isinstance(n.left, kir.Arith) and (n.op, n.left.op) in _GROUPED
        left = self._inner(n.left, _ATOM if grouped else strength + (strength == _COMPARISON))
        return f"{left} {symbol} {self._inner(n.right, strength + 1)}", strength

    def _all(self, n: kir.All) -> Spelled:
        return " & ".join(map(self._inner, n.parts)), _ATOM if len(n.parts) == 1 else _AND

    def _in_range(self, n: kir.InRange) -> Spelled:
        below = f"{n.position.name} < {self.text(n.size)}"
        return (f"({n.position.name} >= 0) & ({below})", _AND) if n.both else (below, _COMPARISON)

    def _no_lane(self, n: kir.NoLane) -> Spelled:
        return f"tl.max({n.mask.name}.to(tl.int32)) == 0", _COMPARISON

    def _align_down(self, n: kir.AlignDown) -> Spelled:
        return f"({n.value.name} // {n.step} * {n.step})", _ATOM

    def _full(self, n: kir.Full) -> Spelled:
        shape = self.shape(n.tiles, n.layout) if n.tiles else "[]"
        dtype = f"tl.int{self.index_bits}" if n.dtype == kir.INDEX else type_text(n.dtype)
        return f"tl.full({shape}, {self.text(n.value)}, {dtype})", _ATOM

    def _cast(self, n: kir.Cast) -> Spelled:
        return f"{self._inner(n.value)}.to({type_text(n.dtype)})", _ATOM

    def _as_index(self, n: kir.AsIndex) -> Spelled:
        bits = self.index_bits
        if (n.value.dtype == kir.INDEX) == (bits == 64):
            return f"{self._inner(n.value)}.to(tl.int{bits})", _ATOM
        return self.text(n.value), _ATOM

    def _broadcast(self, n: kir.Broadcast) -> Spelled:
        constant = isinstance(n.value, kir.Index) and n.value.expression.is_int and n.layout is None
        if constant:
            text = f"tl.full([], {self.text(n.value)}, tl.int32)"
        else:
            text = self._inner(n.value) if n.layout is None else self.text(n.value)
        return f"tl.broadcast_to({text}, {self.shape(n.tiles, n.layout)})", _ATOM

    def _reshape(self, n: kir.Reshape) -> Spelled:
        return f"tl.reshape({self.text(n.value)}, {self.shape(n.tiles, n.layout)})", _ATOM

    def _op(self, n: kir.Op) -> Spelled:
        texts = [self.text(part) for part in n.operands]
        dtypes: list[Any] = [part.dtype for part in n.operands]
        return op_text(Operation(n.name, texts, dtypes, n.dtype, self._need)), _ATOM

    def _call(self, n: kir.Call) -> Spelled:
        return f"{self._need(n.function)}({', '.join(map(self.text, n.operands))})", _ATOM

    def _load(self, n: kir.Load) -> Spelled:
        parts = [self._place(n)]
        parts += [self.text(n.mask)] if n.mask is not None else []
        # No whole number becomes a float of 8 bits.
        zero = "0.0" if n.pointer.dtype in EIGHTHS else "0"
        parts += [f"other={zero}"] if n.filled else []
        parts += [f"eviction_policy='{n.eviction}'"] if n.eviction else []
        return f"tl.load({', '.join(parts)})", _ATOM

    def _reduce(self, n: kir.Reduce) -> Spelled:
        (value,) = n.operands
        if n.function:
            return f"tl.reduce({value.name}, 1, {self._need(n.function)})[:, None]", _ATOM
        return f"tl.{n.kind}({value.name}, 1)[:, None]", _ATOM

    def _scan(self, n: kir.Scan) -> Spelled:
        if n.function:
            return f"tl.associative_scan({n.value.name}, 1, {self._need(n.function)})", _ATOM
        return f"tl.cum{n.kind}({n.value.name}, 1)", _ATOM


def _block(tile: str) -> str:
    return f"{tile.upper()}BLOCK"


def _extent(extent: kir.Extent) -> str:
    if not extent.tile:
        return str(extent.count)
    return f"{_block(extent.tile)} // {extent.over}" if extent.over else _block(extent.tile)


def _line(text: str) -> Callable[[Printer, Any, list[str]], None]:
    return lambda printer, statement, found: found.append(text)


_STATEMENTS: dict[type, Callable[[Any, Any, list[str]], None]] = {
    kir.Assign: Printer._assign,
    kir.Update: Printer._assign,
    kir.Alias: Printer._alias,
    kir.Store: Printer._store,
    kir.Atomic: Printer._atomic,
    kir.Check: Printer._check,
    kir.If: Printer._if,
    kir.For: Printer._for,
    kir.Pipelined: Printer._pipelined,
    kir.Run: Printer._run,
    kir.Return: _line("return"),
    kir.Wait: _line(WAIT),
    kir.Barrier: _line("tl.debug_barrier()"),
    kir.Text: lambda printer, statement, found: found.append(statement.line),
}

_NODES: dict[type, Callable[[Any, Any], Spelled]] = {
    kir.Variable: Printer._variable,
    kir.Number: Printer._number,
    kir.BlockSize: Printer._block_size,
    kir.Program: Printer._program,
    kir.Lanes: Printer._lanes,
    kir.Index: Printer._index,
    kir.Arith: Printer._arith,
    kir.All: Printer._all,
    kir.InRange: Printer._in_range,
    kir.NoLane: Printer._no_lane,
    kir.AlignDown: Printer._align_down,
    kir.Full: Printer._full,
    kir.Cast: Printer._cast,
    kir.AsIndex: Printer._as_index,
    kir.Broadcast: Printer._broadcast,
    kir.Reshape: Printer._reshape,
    kir.Op: Printer._op,
    kir.Call: Printer._call,
    kir.Load: Printer._load,
    kir.Reduce: Printer._reduce,
    kir.Scan: Printer._scan,
}
