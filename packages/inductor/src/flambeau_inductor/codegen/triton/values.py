"""Scalar nodes become variables of the kernel IR, once each.

In: scalar nodes, the tiles, arguments. Out: statements, and for each node the variable that holds it. A value is written in the outermost scope
it can live in: what does not vary along the reduction is computed before the loop over it, and no pass has to move it there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping

import torch
from attrs import evolve, field, frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...expr import Expr, Symbol
from ...ir.scalar import Scalar, indirect_scalars, load, op
from ...kernel_ir import LOOP, NO_TILES, Node, Pointer, Statement, Tiles, Variable
from ..errors import UnsupportedKernel
from ..tiling import Space
from .rough import BESIDE_ONE, ROUGH, rough_call


@frozen(eq=False)
class Scope:
    """Statements in the making and the values that they define."""

    body: list[Statement] = field(factory=list)
    values: dict[tuple[Scalar, str], Variable] = field(factory=dict)


class Emitter:
    """Writes the values of one kernel.

    ``positions`` maps each symbol that counts through a tile to the tile's prefix ("" where one value serves a whole block);
    ``pointers`` and ``scalars`` give the argument that holds a buffer or the name of that which holds a size; ``masks`` the mask of each tile
    where one is needed.
    """

    def __init__(
        self,
        space: Space,
        positions: Mapping[Expr, str],
        pointers: Mapping[str, Pointer],
        scalars: Mapping[str, str],
        masks: dict[str, Variable],
        eviction: Callable[[Scalar], str],
    ) -> None:
        self.space = space
        self.pointers = pointers
        self.scalars = scalars
        self.masks = masks
        self.eviction = eviction
        self.scopes = [Scope()]
        #: Results of reductions and scans, and what was stored where.
        self.reduced: dict[str, Variable] = {}
        self.stored: dict[tuple[str, Expr], Variable] = {}
        #: Sums of exponentials of distances from the maximum, by the reduction's name, and the reciprocals of such sums.
        self.totals: dict[str, Scalar] = {}
        self.inverses: dict[str, Variable] = {}
        #: Neighbours along a row whose exponentials share one rescaling: as many as a thread loads at once.
        self.together = 1
        #: Starts of rows that whole vectors are read of just now, and the first vector of each.
        self.aligned: Mapping[Expr, kir.AlignDown] = {}
        #: Tile -> where its block starts and how long it is, for tiles that no loop moves.
        self.starts: Mapping[str, tuple[Node, int]] = {}
        #: From where to where along the row the block lies, where that is known as it is written.
        self.piece: tuple[int, int] | None = None
        #: Whether all results are rounded to 16 bits at last, so that functions may be less accurate than float32.
        self.rough = False
        self._count = 0
        self._memory: dict[Scalar, bool] = {}
        self._tiles = positions
        self._order = [tile.prefix for tile in space.tiles]

    # -- names, scopes, shapes -------------------------------------------------------------------------------------------

    def name(self, prefix: str = "v") -> str:
        """A fresh variable."""
        self._count += 1
        return f"{prefix}{self._count}"

    def add(self, statement: Statement, tiles: Tiles) -> None:
        """Add a statement to the outermost scope where values of ``tiles`` exist."""
        self._scope(tiles).body.append(statement)

    def define(self, value: Node, prefix: str = "v") -> Variable:
        """A new variable that holds ``value``."""
        variable = Variable(self.name(prefix), value.tiles, value.dtype)
        self.add(kir.Assign((variable,), value), value.tiles)
        return variable

    def _scope(self, tiles: Tiles) -> Scope:
        return self.scopes[-1] if "r" in tiles or LOOP in tiles else self.scopes[0]

    def broadcast(self, value: Node, tiles: Tiles) -> Node:
        """``value`` with extent along all of ``tiles``."""
        return value if value.tiles == tiles else kir.Broadcast(value, tiles)

    def tile_masks(self, tiles: Tiles) -> list[Node]:
        """The masks of the tiles in ``tiles`` where lanes lie outside."""
        return [self.masks[p] for p in self._order if p in tiles and p in self.masks]

    # -- index expressions -----------------------------------------------------------------------------------------------

    def index(self, e: Expr, mask: Variable | None = None) -> Node:
        """An index expression (over tile symbols)."""
        for row, base in self.aligned.items():
            if e - row is self.space.tiles[-1].symbol:
                places = {self._tiles.get(s, "") for s in ex.free_symbols(row)} - {""}
                return kir.Arith("add", base, kir.position("at", "r"), frozenset({"r"} | places), kir.INDEX)
        names: list[tuple[Expr, Node]] = []
        # In an order that is the same in every process: loads are written as their symbols are met.
        for symbol in sorted(ex.free_symbols(e), key=lambda s: s.key):
            prefix = self._tiles.get(symbol)
            if prefix is not None:
                node: Node = Variable(symbol.name, frozenset({prefix}) if prefix else NO_TILES, kir.INDEX)
            elif symbol.definition is not None:
                node = kir.AsIndex(self.emit(symbol.definition, mask))
            else:
                node = kir.position(self.scalars[symbol.name])
            names.append((symbol, node))
        return kir.Index(e, tuple(names), frozenset().union(*(node.tiles for _, node in names)))

    # -- scalar nodes ----------------------------------------------------------------------------------------------------

    def emit(self, root: Scalar, mask: Variable | None = None) -> Variable:
        """The value of ``root``; loads below it happen only where ``mask`` (a bool value) holds."""
        stack = [root]
        while stack:
            node = stack[-1]
            if self._find(node, mask) is not None:
                stack.pop()
                continue
            first = node.children[:1] if node.kind == "masked" else self._known_first(node)
            if node.op == "fma":
                # Of a long sum what comes first is done first: what it adds is not kept in registers until the end.
                first = first[::-1]
            pending = [c for c in (*first, *indirect_scalars(node)) if self._find(c, mask) is None]
            if pending:
                stack.extend(reversed(pending))
                continue
            value = self._compute(node, mask)
            self._scope(value.tiles).values[self._key(node, mask)] = value
            stack.pop()
        found = self._find(root, mask)
        assert found is not None
        return found

    def emit_loads(self, root: Scalar) -> None:
        """The loads below ``root`` whose places and masks no other load decides, with what these are computed from."""
        seen: set[tuple[Scalar, str]] = set()
        stack: list[tuple[Scalar, Variable | None]] = [(root, None)]
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

    def _key(self, node: Scalar, mask: Variable | None) -> tuple[Scalar, str]:
        return (node, mask.name if mask is not None and self._touches_memory(node) else "")

    def _find(self, node: Scalar, mask: Variable | None) -> Variable | None:
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

    def _reduced(self, node: Scalar) -> Variable:
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

    def _compute(self, node: Scalar, mask: Variable | None) -> Variable:
        if node.kind == "constant":
            return self.define(kir.constant(node.args[0], node.dtype), "k")
        if node.kind == "parameter":
            return self.define(_argument(self.scalars[node.args[0]], node.dtype))
        if node.kind == "index":
            return self.define(kir.Cast(self.index(node.index, mask), node.dtype))
        if node.kind == "load":
            return self._load(node, mask)
        if node.kind == "masked":
            return self._masked(node, mask)
        if _beside_one(node, self.beside_one):
            return self._add_beside_one(node, mask)
        if self.rough and (known := rough_call(node)) is not None:
            value = self.emit(known[1], mask)
            return self.define(kir.Call(known[0], (value,), node.dtype, value.tiles))
        operands = [self.emit(part, mask) for part in node.children]
        tiles: Tiles = frozenset().union(*(value.tiles for value in operands))
        if node.op == "check_bounds":
            return self._check_bounds(operands[0], operands[1], tiles, mask)
        if node.op == "truediv":
            quotient = self._cheap_quotient(node, operands, tiles)
            if quotient is not None:
                return self.define(quotient)
        if node.op == "philox_uniform" and self._neighbours_share(node, tiles):
            return self._draw_for_neighbours(node, operands, tiles)
        if node.op in ("sin", "cos") and node.dtype is torch.float32 and tiles - {LOOP}:
            return self._sine_and_cosine(node, operands[0], mask)
        if self.rough and node.op in ROUGH and node.dtype is torch.float32 and tiles:
            return self.define(kir.Call(ROUGH[node.op], tuple(operands), node.dtype, tiles))
        return self.define(kir.Op(node.op, tuple(operands), node.dtype, tiles))

    def _known_first(self, node: Scalar) -> tuple[Scalar, ...]:
        """What a node is computed from where it is no plain operation on its operands, else those."""
        known = rough_call(node) if self.rough else None
        return known[1:] if known is not None else _beside_one(node, self.beside_one) or node.children

    @property
    def beside_one(self) -> Mapping[str, str]:
        """The functions that have a form of their own where they are added to a number of at least one."""
        return BESIDE_ONE if self.rough else {"erf": "erf_beside_one"}

    def _add_beside_one(self, node: Scalar, mask: Variable | None) -> Variable:
        """An error function, say, plus or minus a number of at least one: its absolute error counts."""
        operands = []
        for part in node.children:
            function = self.beside_one.get(part.op or "")
            if function is not None and self._find(part, mask) is None:
                angle = self.emit(part.children[0], mask)
                operands.append(self.define(kir.Call(function, (angle,), part.dtype, angle.tiles)))
            else:
                operands.append(self.emit(part, mask))
        return self.define(kir.Op(node.op, tuple(operands), node.dtype, operands[0].tiles | operands[1].tiles))

    def _sine_and_cosine(self, node: Scalar, angle: Variable, mask: Variable | None) -> Variable:
        """Both of one angle by one call; the value of ``node``."""
        values = {name: Variable(self.name(), angle.tiles, node.dtype) for name in ("sin", "cos")}
        both = kir.Call("sin_cos", (angle,), node.dtype, angle.tiles)
        self.add(kir.Assign(tuple(values.values()), both), angle.tiles)
        for name, value in values.items():
            twin = op(name, node.children[0], dtype=node.dtype)
            self._scope(angle.tiles).values[self._key(twin, mask)] = value
        return values[node.op]

    def _cheap_quotient(self, node: Scalar, operands: list[Variable], tiles: Tiles) -> Node | None:
        """A division that rounds as one but costs less, None where there is none."""
        part, whole = node.children
        if whole.kind == "constant" and _is_power_of_two(float(whole.args[0])):
            factor = kir.Number(1.0 / float(whole.args[0]), node.dtype)
            return kir.Op("mul", (operands[0], factor), node.dtype, tiles)
        if whole.kind == "reduced" and self.totals.get(whole.args[0]) is part and node.dtype is torch.float32:
            dividend, divisor = operands
            inverse = self.inverses.get(divisor.name)
            if inverse is None:
                inverse = self.define(kir.Op("reciprocal", (divisor,), node.dtype, divisor.tiles))
                self.inverses[divisor.name] = inverse
            return kir.Call("divide_part", (dividend, divisor, inverse), node.dtype, tiles)
        return None

    def _neighbours_share(self, draw: Scalar, tiles: Tiles) -> bool:
        """Whether four neighbours along the block's last dimension take the four words of one draw, in order."""
        *_, call, thread, lane = draw.children
        last = self.space.tiles[-1]
        if tiles != frozenset(self._order) or lane.kind != "index" or lane.index is not last.symbol % 4:
            return False
        known = {tile.symbol for tile in self.space.tiles}
        plain = all(n.kind == "constant" or ex.free_symbols(n.index) <= known for n in (call, thread))
        return plain and last.prefix in self.starts and self.starts[last.prefix][1] % 4 == 0

    def _draw_for_neighbours(self, draw: Scalar, operands: list[Variable], tiles: Tiles) -> Variable:
        """One draw a quarter of the block: what tells draw and thread is the same for four neighbours, so the first's will do."""
        last = self.space.tiles[-1]
        lanes = kir.Lanes(last.prefix, last.prefix not in self.masks, over=4)
        firsts = kir.total(self.starts[last.prefix][0], kir.arith("mul", kir.Number(4), lanes))
        quarter = (*(kir.Extent(p) for p in self._order[:-1]), kir.Extent(last.prefix, over=4))
        first = Variable(self.name("q"), firsts.tiles, kir.INDEX, quarter[-1:])
        self.add(kir.Assign((first,), firsts), firsts.tiles)
        nothing = kir.arith("mul", first, kir.Number(0))
        places = []
        for node in draw.children[3:5]:
            e = ex.Int(node.args[0]) if node.kind == "constant" else node.index
            names = tuple(
                (s, first if s is last.symbol else kir.position(s.name, self._tiles[s])) for s in ex.free_symbols(e)
            )
            place = kir.Index(e, names, frozenset().union(*(name.tiles for _, name in names)))
            places.append(kir.Broadcast(kir.total(place, nothing), tiles, quarter))
        call = kir.Call(
            "philox_neighbours", (*operands[:3], *places), draw.dtype, tiles, (*quarter, kir.Extent(count=4))
        )
        return self.define(kir.Reshape(call, tiles))

    def _masked(self, node: Scalar, mask: Variable | None) -> Variable:
        condition = self.emit(node.args[0], mask)
        body = self.emit(node.args[1], self._inside(node, mask))
        if self._is_zero_outside(node):
            return body
        other = self.emit(node.args[2], mask)
        tiles = condition.tiles | body.tiles | other.tiles
        return self.define(kir.Op("where", (condition, body, other), node.dtype, tiles))

    def _is_zero_outside(self, node: Scalar) -> bool:
        """Whether what a masked node holds is its other value already where the condition does not hold: a load gives zero there."""
        _, body, other = node.args
        load = body.children[0] if body.op == "to_dtype" else body
        zero = other.kind == "constant" and other.args[0] == 0 and math.copysign(1.0, other.args[0]) > 0
        return zero and load.kind == "load" and (load.buffer, load.index) not in self.stored

    def _inside(self, node: Scalar, mask: Variable | None) -> Variable:
        """The mask of what a masked node holds, within ``mask``."""
        condition = self.emit(node.args[0], mask)
        if mask is None:
            return condition
        key = (node, f"inside {mask.name}")
        for scope in reversed(self.scopes):
            if key in scope.values:
                return scope.values[key]
        inner = self.define(kir.Op("logical_and", (mask, condition), torch.bool, mask.tiles | condition.tiles), "m")
        self._scope(inner.tiles).values[key] = inner
        return inner

    def _load_of_steps(self, node: Scalar) -> Variable | None:
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
            return evolve(values[0], tiles=values[0].tiles | {LOOP})
        before = kir.arith("lt", kir.position("ri", "r"), kir.Number(last * length))
        return self.define(kir.Op("where", (before, *values), node.dtype, values[0].tiles | {"r"}))

    def _load(self, node: Scalar, mask: Variable | None) -> Variable:
        if mask is None and (steps := self._load_of_steps(node)) is not None:
            return steps
        index = self.index(node.index, mask)
        index = self.broadcast(index, index.tiles if mask is None else index.tiles | mask.tiles)
        exists = kir.all_of([*self.tile_masks(index.tiles), *([] if mask is None else [mask])])
        pointer = self.pointers[node.buffer]
        return self.define(kir.Load(pointer, index, exists, exists is not None, self.eviction(node)))

    def _check_bounds(self, position: Variable, size: Variable, tiles: Tiles, mask: Variable | None) -> Variable:
        wanted = tiles if mask is None else tiles | mask.tiles
        masks = (*self.tile_masks(wanted), *(() if mask is None else (mask,)))
        self.add(kir.Check(position, size, masks), wanted)
        return position

    def convert(self, value: Variable, dtype: torch.dtype) -> Variable:
        """``value`` in ``dtype``."""
        return value if value.dtype is dtype else self.define(kir.Op("to_dtype", (value,), dtype, value.tiles))


def _beside_one(node: Scalar, functions: Container[str]) -> tuple[Scalar, ...]:
    """What must be known before one of ``functions`` in float32 is added to a constant of at least one; empty for other nodes."""
    if node.op not in ("add", "sub") or node.dtype is not torch.float32:
        return ()
    one, other = node.children if node.children[0].kind == "constant" else node.children[::-1]
    if other.op not in functions or one.kind != "constant" or not abs(one.args[0]) >= 1:
        return ()
    return (one, other.children[0])


def _is_power_of_two(value: float) -> bool:
    """Whether the reciprocal of ``value`` is exact in float32."""
    return value > 0 and math.isfinite(value) and math.frexp(value)[0] == 0.5 and -100 < math.frexp(value)[1] < 100


def _argument(name: str, dtype: torch.dtype) -> Node:
    """A scalar argument in ``dtype``."""
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    value = kir.Full(Variable(name, NO_TILES, wide), wide)
    return value if dtype is wide else kir.Op("to_dtype", (value,), dtype, NO_TILES)
