"""Scalar nodes of the IR become named blocks, once each.

In: scalar nodes, the tiles, names of arguments. Out: lines of source, and for each node a ``Value``: the name that holds it
and the tile dimensions it varies along. A value is written in the outermost scope it can live in: what does not vary along the
reduction is computed before the loop over it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from attrs import evolve, field, frozen

from ... import expr as ex
from ...expr import Expr, Symbol
from ...ir.scalar import Scalar, indirect_scalars, load, op
from ..tiling import Space
from .errors import UnsupportedKernel
from .ops import Operation, cast_text, op_text
from .types import literal, type_text

Dims = frozenset[str]
NO_DIMS: Dims = frozenset()
#: In the dims of what is one value for a block of a row but another for the next block.
LOOP = "loop"


@frozen
class Value:
    """A computed block: ``text`` names it, ``dims`` are the tiles it varies along (its extent is 1 along the others)."""

    text: str
    dims: Dims
    dtype: torch.dtype


@frozen(eq=False)
class Scope:
    """Lines in the making and the values that they define."""

    lines: list[str] = field(factory=list)
    values: dict[tuple[Scalar, str], Value] = field(factory=dict)


class Emitter:
    """Writes the values of one kernel.

    ``positions`` maps each symbol that counts through a tile to the tile's prefix ("" where one value serves a whole block);
    ``pointers`` and ``scalars`` give the argument that holds a buffer or a size; ``masks`` the name of each tile's mask where
    one is needed; ``blocks`` the block size of each tile.
    """

    def __init__(
        self,
        space: Space,
        positions: Mapping[Expr, str],
        pointers: Mapping[str, str],
        scalars: Mapping[str, str],
        masks: dict[str, str],
        index_bits: int,
        eviction: Callable[[Scalar], str],
    ) -> None:
        self.space = space
        self.pointers = pointers
        self.scalars = scalars
        self.masks = masks
        self.index_bits = index_bits
        self.eviction = eviction
        self.helpers: set[str] = set()
        self.asserts = False
        self.scopes = [Scope()]
        #: Results of reductions and scans, and what was stored where.
        self.reduced: dict[str, Value] = {}
        self.stored: dict[tuple[str, Expr], Value] = {}
        #: Sums of exponentials of distances from the maximum, by the reduction's name, and the reciprocals of such sums.
        self.totals: dict[str, Scalar] = {}
        self.inverses: dict[str, Value] = {}
        #: Neighbours along a row whose exponentials share one rescaling: as many as a thread loads at once.
        self.together = 1
        #: Starts of rows that whole vectors are read of just now, and the first vector of each.
        self.aligned: Mapping[Expr, str] = {}
        #: Tile -> where its block starts and how long it is, for tiles that no loop moves.
        self.starts: Mapping[str, tuple[str, int]] = {}
        #: From where to where along the row the block lies, where that is known as it is written.
        self.piece: tuple[int, int] | None = None
        #: What every new name ends in.
        self._suffix = ""
        self._count = 0
        self._memory: dict[Scalar, bool] = {}
        self._tiles = positions
        self._order = [tile.prefix for tile in space.tiles]

    # -- names, scopes, shapes -------------------------------------------------------------------------------------------

    def need(self, helper: str) -> str:
        """Note that the module must define ``helper``; its name."""
        self.helpers.add(helper)
        return helper

    def name(self, prefix: str = "v") -> str:
        """A fresh variable."""
        self._count += 1
        return f"{prefix}{self._count}{self._suffix}"

    def restart(self, suffix: str) -> None:
        """Begin anew, under names that end in ``suffix``, those of positions included: what is written twice has the same names but for that."""
        self.scopes = [Scope()]
        self._count, self._suffix = 0, suffix

    def line(self, text: str, dims: Dims) -> None:
        """Add a line to the outermost scope where values of ``dims`` exist."""
        self._scope(dims).lines.append(text)

    def define(self, text: str, dims: Dims, dtype: torch.dtype, prefix: str = "v") -> Value:
        """A new variable holding ``text``."""
        name = self.name(prefix)
        self.line(f"{name} = {text}", dims)
        return Value(name, dims, dtype)

    def _scope(self, dims: Dims) -> Scope:
        return self.scopes[-1] if "r" in dims or LOOP in dims else self.scopes[0]

    def shape(self, dims: Dims) -> str:
        """The shape of a block that varies along ``dims``."""
        return "[" + ", ".join(f"{p.upper()}BLOCK" if p in dims else "1" for p in self._order) + "]"

    def broadcast(self, text: str, have: Dims, want: Dims) -> str:
        """``text`` with extent along all of ``want``."""
        return text if have == want else f"tl.broadcast_to({text}, {self.shape(want)})"

    def tile_masks(self, dims: Dims) -> list[str]:
        """The masks of the tiles in ``dims`` where lanes lie outside."""
        return [self.masks[p] for p in self._order if p in dims and p in self.masks]

    def tile_mask(self, dims: Dims) -> str:
        """All of them as one, "" where there is none."""
        return " & ".join(self.tile_masks(dims))

    # -- index expressions -----------------------------------------------------------------------------------------------

    def index(self, e: Expr, mask: Value | None = None) -> tuple[str, Dims]:
        """An index expression (over tile symbols) as text, and the dimensions it varies along."""
        dims: set[str] = set()
        names: dict[Expr, str] = {}
        for row, base in self.aligned.items():
            if e - row is self.space.tiles[-1].symbol:
                return f"{base} + at", frozenset({"r"} | {self._tiles.get(s, "") for s in ex.free_symbols(row)}) - {""}
        for symbol in ex.free_symbols(e):
            prefix = self._tiles.get(symbol)
            if prefix is not None:
                dims |= {prefix} - {""}
                names[symbol] = symbol.name + self._suffix
            elif symbol.definition is not None:
                value = self.emit(symbol.definition, mask)
                dims |= value.dims
                names[symbol] = value.text if self.index_bits == 64 else f"{value.text}.to(tl.int32)"
            else:
                names[symbol] = self.scalars[symbol.name]
        return ex.render(e, "triton", names.__getitem__), frozenset(dims)

    # -- scalar nodes ----------------------------------------------------------------------------------------------------

    def emit(self, root: Scalar, mask: Value | None = None) -> Value:
        """The value of ``root``; loads below it happen only where ``mask`` (a bool value) holds."""
        stack = [root]
        while stack:
            node = stack[-1]
            if self._find(node, mask) is not None:
                stack.pop()
                continue
            first = node.children[:1] if node.kind == "masked" else _beside_one(node) or node.children
            pending = [c for c in (*first, *indirect_scalars(node)) if self._find(c, mask) is None]
            if pending:
                stack.extend(reversed(pending))
                continue
            value = self._compute(node, mask)
            self._scope(value.dims).values[self._key(node, mask)] = value
            stack.pop()
        found = self._find(root, mask)
        assert found is not None
        return found

    def emit_loads(self, root: Scalar) -> None:
        """The loads below ``root`` whose places and masks no other load decides, with what these are computed from."""
        seen: set[tuple[Scalar, str]] = set()
        stack: list[tuple[Scalar, Value | None]] = [(root, None)]
        while stack:
            node, mask = stack.pop()
            if self._key(node, mask) in seen:
                continue
            seen.add(self._key(node, mask))
            places = indirect_scalars(node)
            if node.kind == "load" and not any(map(self._touches_memory, places)):
                self.emit(node, mask)
                continue
            parts = [(part, mask) for part in (*node.children, *places)]
            if node.kind == "masked":
                condition, body, other = node.args
                parts = [(condition, mask), (other, mask)]
                if not self._touches_memory(condition):
                    parts.insert(1, (body, self._inside(node, mask)))
            stack.extend(reversed(parts))

    def _key(self, node: Scalar, mask: Value | None) -> tuple[Scalar, str]:
        return (node, mask.text if mask is not None and self._touches_memory(node) else "")

    def _find(self, node: Scalar, mask: Value | None) -> Value | None:
        if node.kind == "reduced":
            return self._reduced(node)
        if node.kind == "load":
            stored = self.stored.get((node.buffer, node.index))
            if stored is not None:
                return stored
        key = self._key(node, mask)
        for scope in reversed(self.scopes):
            found = scope.values.get(key)
            if found is not None:
                return found
        return None

    def _reduced(self, node: Scalar) -> Value:
        found = self.reduced.get(node.args[0])
        if found is None:
            raise UnsupportedKernel(f"{node.args[0]} is used before its reduction")
        return found

    def _touches_memory(self, node: Scalar) -> bool:
        found = self._memory.get(node)
        if found is None:
            stack = [node]
            while stack:
                top = stack[-1]
                parts = (*top.children, *indirect_scalars(top))
                pending = [part for part in parts if part not in self._memory]
                if pending:
                    stack.extend(pending)
                    continue
                own = top.kind == "load" or top.op == "check_bounds"
                self._memory[top] = own or any(self._memory[part] for part in parts)
                stack.pop()
            found = self._memory[node]
        return found

    def _compute(self, node: Scalar, mask: Value | None) -> Value:
        if node.kind == "constant":
            return self.define(literal(node.args[0], node.dtype), NO_DIMS, node.dtype, "k")
        if node.kind == "parameter":
            name = self.scalars[node.args[0]]
            return self.define(literal_of_argument(name, node.dtype), NO_DIMS, node.dtype)
        if node.kind == "index":
            text, dims = self.index(node.index, mask)
            return self.define(f"({text}).to({type_text(node.dtype)})", dims, node.dtype)
        if node.kind == "load":
            return self._load(node, mask)
        if node.kind == "masked":
            return self._masked(node, mask)
        if _beside_one(node):
            return self._add_erf(node, mask)
        operands = [self.emit(part, mask) for part in node.children]
        dims = frozenset().union(*(value.dims for value in operands))
        if node.op == "check_bounds":
            return self._check_bounds(operands[0], operands[1], dims, mask)
        if node.op == "truediv":
            quotient = self._cheap_quotient(node, operands)
            if quotient:
                return self.define(quotient, dims, node.dtype)
        if node.op == "philox_uniform" and self._neighbours_share(node, dims):
            return self._draw_for_neighbours(node, operands, dims)
        if node.op in ("sin", "cos") and node.dtype is torch.float32 and dims - {LOOP}:
            return self._sine_and_cosine(node, operands[0], mask)
        operation = Operation(node.op, [v.text for v in operands], [v.dtype for v in operands], node.dtype, self.need)
        return self.define(op_text(operation), dims, node.dtype)

    def _add_erf(self, node: Scalar, mask: Value | None) -> Value:
        """An error function plus or minus a number of at least one: its absolute error counts."""
        operands = []
        for part in node.children:
            if part.op == "erf" and self._find(part, mask) is None:
                angle = self.emit(part.children[0], mask)
                operands.append(self.define(f"{self.need('erf_beside_one')}({angle.text})", angle.dims, part.dtype))
            else:
                operands.append(self.emit(part, mask))
        operation = Operation(node.op, [v.text for v in operands], [v.dtype for v in operands], node.dtype, self.need)
        return self.define(op_text(operation), operands[0].dims | operands[1].dims, node.dtype)

    def _sine_and_cosine(self, node: Scalar, angle: Value, mask: Value | None) -> Value:
        """Both of one angle by one call; the value of ``node``."""
        names = {"sin": self.name(), "cos": self.name()}
        self.line(f"{names['sin']}, {names['cos']} = {self.need('sin_cos')}({angle.text})", angle.dims)
        values = {name: Value(text, angle.dims, node.dtype) for name, text in names.items()}
        for name, value in values.items():
            twin = op(name, node.children[0], dtype=node.dtype)
            self._scope(angle.dims).values[self._key(twin, mask)] = value
        return values[node.op]

    def _cheap_quotient(self, node: Scalar, operands: list[Value]) -> str:
        """A division that rounds as one but costs less, "" where there is none."""
        part, whole = node.children
        if whole.kind == "constant" and _is_power_of_two(float(whole.args[0])):
            return f"({operands[0].text} * {1.0 / float(whole.args[0])!r})"
        if whole.kind == "reduced" and self.totals.get(whole.args[0]) is part and node.dtype is torch.float32:
            total = operands[1]
            inverse = self.inverses.get(total.text)
            if inverse is None:
                one = literal(1.0, total.dtype)
                inverse = self.define(f"{self.need('divide')}({one}, {total.text})", total.dims, total.dtype)
                self.inverses[total.text] = inverse
            return f"{self.need('divide_part')}({operands[0].text}, {total.text}, {inverse.text})"
        return ""

    def _neighbours_share(self, draw: Scalar, dims: Dims) -> bool:
        """Whether four neighbours along the block's last dimension take the four words of one draw, in order."""
        *_, call, thread, lane = draw.children
        last = self.space.tiles[-1]
        if dims != frozenset(self._order) or lane.kind != "index" or lane.index is not last.symbol % 4:
            return False
        known = {tile.symbol for tile in self.space.tiles}
        plain = all(n.kind == "constant" or ex.free_symbols(n.index) <= known for n in (call, thread))
        return plain and self.starts.get(last.prefix, ("", 0))[1] % 4 == 0 and last.prefix in self.starts

    def _draw_for_neighbours(self, draw: Scalar, operands: list[Value], dims: Dims) -> Value:
        """One draw a quarter of the block: what tells draw and thread is the same for four neighbours, so the first's will do."""
        last = self.space.tiles[-1]
        block, rest = f"{last.prefix.upper()}BLOCK", self._order[:-1]
        firsts = f"{self.starts[last.prefix][0]} + 4 * tl.arange(0, {block} // 4){'[None, :]' if rest else ''}"
        name = self.define(firsts, frozenset({last.prefix}), torch.int64, "q").text
        names = {tile.symbol: name if tile is last else tile.symbol.name for tile in self.space.tiles}
        shape = "[" + ", ".join([*(f"{p.upper()}BLOCK" for p in rest), f"{block} // 4"]) + "]"
        places = []
        for node in draw.children[3:5]:
            text = str(node.args[0]) if node.kind == "constant" else ex.render(node.index, "triton", names.__getitem__)
            places.append(f"tl.broadcast_to(({text}) + {name} * 0, {shape})")
        known = ", ".join([*(v.text for v in operands[:3]), *places])
        helper = self.need("philox_neighbours")
        return self.define(f"tl.reshape({helper}({known}), {self.shape(dims)})", dims, draw.dtype)

    def _masked(self, node: Scalar, mask: Value | None) -> Value:
        condition = self.emit(node.args[0], mask)
        body = self.emit(node.args[1], self._inside(node, mask))
        other = self.emit(node.args[2], mask)
        dims = condition.dims | body.dims | other.dims
        return self.define(f"tl.where({condition.text}, {body.text}, {other.text})", dims, node.dtype)

    def _inside(self, node: Scalar, mask: Value | None) -> Value:
        """The mask of what a masked node holds, within ``mask``."""
        condition = self.emit(node.args[0], mask)
        if mask is None:
            return condition
        key = (node, f"inside {mask.text}")
        for scope in reversed(self.scopes):
            if key in scope.values:
                return scope.values[key]
        inner = self.define(f"({mask.text} & {condition.text})", mask.dims | condition.dims, torch.bool, "m")
        self._scope(inner.dims).values[key] = inner
        return inner

    def _load_of_steps(self, node: Scalar) -> Value | None:
        """A load of what is the same along stretches of the row, where the block lies in one of them or in two: one value each."""
        r = self.space.tiles[-1].symbol
        parts = [n for n in ex.walk(node.index) if n.op == "floordiv" and n.args[0] is r and n.args[1].is_int]
        if self.piece is None or len({part.args[1] for part in parts}) != 1:
            return None
        length = int(parts[0].args[1])
        first, last = self.piece[0] // length, (self.piece[1] - 1) // length
        number, within = Symbol("rn", bound=ex.Int(last + 1)), Symbol("rw", bound=ex.Int(length))
        index = ex.substitute(node.index, {r: number * length + within})
        if last - first > 1 or within in ex.free_symbols(index):
            return None
        places = [ex.substitute(index, {number: ex.Int(n)}) for n in (first, last)]
        values = [self.emit(load(node.buffer, place, node.dtype)) for place in places]
        if first == last:
            return evolve(values[0], dims=values[0].dims | {LOOP})
        text = f"tl.where(ri < {last * length}, {values[0].text}, {values[1].text})"
        return self.define(text, values[0].dims | {"r"}, node.dtype)

    def _load(self, node: Scalar, mask: Value | None) -> Value:
        if mask is None and (steps := self._load_of_steps(node)) is not None:
            return steps
        offset, dims = self.index(node.index, mask)
        wanted = dims if mask is None else dims | mask.dims
        if wanted != dims:
            offset = self.broadcast(
                f"tl.full([], {offset}, tl.int32)" if node.index.is_int else f"({offset})", dims, wanted
            )
        masks = [part for part in (self.tile_mask(wanted), mask.text if mask is not None else "") if part]
        arguments = [f"{self.pointers[node.buffer]} + ({offset})"]
        if masks:
            arguments += [" & ".join(masks), "other=0"]
        policy = self.eviction(node)
        if policy:
            arguments.append(f"eviction_policy='{policy}'")
        return self.define(f"tl.load({', '.join(arguments)})", wanted, node.dtype)

    def _check_bounds(self, position: Value, size: Value, dims: Dims, mask: Value | None) -> Value:
        self.asserts = True
        legal = f"({position.text} >= 0) & ({position.text} < {size.text})"
        wanted = dims if mask is None else dims | mask.dims
        masks = [*self.tile_masks(wanted), *([] if mask is None else [mask.text])]
        condition = " | ".join([f"({legal})", *(f"({part} == 0)" for part in masks)])
        self.line(f"tl.device_assert({condition}, 'index out of range')", wanted)
        return position

    def convert(self, value: Value, dtype: torch.dtype) -> Value:
        """``value`` in ``dtype``."""
        if value.dtype is dtype:
            return value
        return self.define(cast_text(value.text, value.dtype, dtype), value.dims, dtype)


def _beside_one(node: Scalar) -> tuple[Scalar, ...]:
    """What must be known before an error function in float32 is added to a constant of at least one; empty for other nodes."""
    if node.op not in ("add", "sub") or node.dtype is not torch.float32:
        return ()
    one, other = node.children if node.children[0].kind == "constant" else node.children[::-1]
    if other.op != "erf" or one.kind != "constant" or not abs(one.args[0]) >= 1:
        return ()
    return (one, other.children[0])


def _is_power_of_two(value: float) -> bool:
    """Whether the reciprocal of ``value`` is exact in float32."""
    return value > 0 and math.isfinite(value) and math.frexp(value)[0] == 0.5 and -100 < math.frexp(value)[1] < 100


def literal_of_argument(name: str, dtype: torch.dtype) -> str:
    """A scalar argument as a block of ``dtype``."""
    wide = "tl.float64" if dtype.is_floating_point else "tl.int64"
    text = f"tl.full([], {name}, {wide})"
    if type_text(dtype) == wide:
        return text
    source: Any = torch.float64 if dtype.is_floating_point else torch.int64
    return cast_text(text, source, dtype)
