"""One ``KernelBody`` as one ``@triton.jit`` function, by way of the kernel IR.

In: a body. Out: a ``KernelText``: the kernel in the IR, the function's source, the helpers it calls, its parameters and the launch facts.
The parts: ``tiling`` flattens the axes, ``options`` picks blocks and warps, ``passes`` says which walk over the row a statement
belongs to, ``places`` says where a program's blocks lie, ``values`` builds scalars, ``reduction`` reductions and scans; ``print`` writes the text.

    pointwise     xi over all points; or yi and xi, two tile dimensions, where accesses are transposed
    persistent    a block holds whole rows: every load happens once, statements follow each other
    repeated      pointwise, several blocks a program: each is loaded while the one before it is worked on
    halves        persistent, two rounds of programs: each does the rows that it finds in its half of a table
    pieces        several blocks hold a row: every load happens once, each stage goes over all of them
    looped        one loop over the row per stage, accumulators a block wide
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from attrs import evolve, frozen

from ... import expr as ex
from ... import kernel_ir as kir
from ...devices import device_facts
from ...expr import ONE, Expr
from ...ir.kernel import LOOPED, KernelBody, Reduce, Statement, Store
from ...ir.scalar import Scalar, index_value, load, loads, substitute, walk
from ...kernel_ir import LOOP, Kernel, Variable, arith, position
from ...kernel_ir import Statement as Step
from ...kernel_ir.pipelining import pipelined
from ...ops.dtypes import HALVES
from .. import tiling
from ..errors import UnsupportedKernel
from . import options, reduction
from .function import Function, positions
from .lookups import MASK, choose_rows, largest_lookup
from .looped import Loops
from .numbers import scalar_names, scalar_types, scalar_variables
from .options import Config, Traffic
from .passes import Plan, plan
from .pieces import Pieces
from .places import PID, Places, aliases
from .print import Printer
from .statements import Statements
from .traffic import accesses, lies_anywhere, moved, operations, step, traffic_of
from .types import signature_text
from .values import Emitter, Scope

_INT32 = 2**31 - 1
#: Fewer points than this gain nothing from vectors.
_WORTH_TWO_BODIES = 1 << 15
#: Operations that say little about a kernel.
_PLAIN = ("to_dtype", "check_bounds", "where", "lt", "le", "gt", "ge", "eq", "ne", "logical_and")


@frozen
class KernelText:
    """A generated kernel. ``entry`` is the name that tells most of it.

    ``buffers`` and ``scalars`` are the arguments in order: one buffer of each storage, then symbols or parameter names.
    ``signature`` maps their parameter names to Triton's types; ``programs`` is the size of the grid.
    """

    entry: str
    function: Function
    kernel: Kernel
    helpers: frozenset[str]
    body: KernelBody
    buffers: tuple[str, ...]
    scalars: tuple[Expr | str, ...]
    signature: Mapping[str, str]
    divisible: tuple[str, ...]
    config: Config
    programs: Expr
    asserts: bool
    moved: Expr

    @property
    def source(self) -> str:
        """The function under its own name."""
        return self.function.text(self.entry)

    def of(self, body: KernelBody) -> KernelText:
        """The text of a body that differs in its name and where it comes from alone."""
        same = evolve(self.body, name=body.name, origins=body.origins, stacks=body.stacks)
        function = evolve(self.function, comments=positions(body.stacks))
        return evolve(self, entry=_entry(same, self.config), function=function, body=same)


def kernel_text(body: KernelBody, config: Config | None = None, first: str = "") -> KernelText:
    """Generate ``body``; ``config`` overrides the analytic choice. ``first`` is a parameter more: the number of the first program, of a function
    that is called by programs of several kernels. Raises UnsupportedKernel, with the reason."""
    return Generator(body, config, first).generate()


class Generator:
    """The state of generating one kernel."""

    def __init__(self, body: KernelBody, config: Config | None, first: str) -> None:
        self.first = first
        self.dtypes = {buffer.name: buffer.layout.dtype for buffer in body.buffers}
        self.space = tiling.space_of(body)
        if any(isinstance(s, Store) and self._needs_turns(s) for s in body.statements):
            if body.inner:
                raise UnsupportedKernel("a combining store without an atomic, next to a reduction")
            self.space = tiling.flat_space(body)
        self.plan: Plan = plan(body)
        self.body = evolve(body, statements=tuple(_replaced(s, self.space.values) for s in body.statements))
        self.storage = {buffer.name: buffer.storage for buffer in body.buffers}
        #: One program takes the points in turn: the stores combine with memory in ways that no atomic does.
        self.serial = any(isinstance(s, Store) and self._needs_turns(s) for s in body.statements)
        if self.serial and first:
            raise UnsupportedKernel("a kernel whose one program takes its points in turn")
        #: What the configuration was chosen by; None where it was given.
        self.traffic: Traffic | None = None
        self.config = Config({"x": 1}, 1) if self.serial else config or self._configure()
        #: Where a block lies is not known from the program's number alone: one program does several of them in turn.
        self.moving = self.serial or self.config.repeats > 1
        pairs = self.plan.pairs
        if self.config.pieces:
            self.plan = plan(body, paired=False)
        self.moved = moved(self.body, self.space, self.dtypes)
        self.mirrored = self._mirrored()
        self.segments = () if self.moving else self._segments()
        for part in self.segments:
            values = {part.tile.symbol: part.number * part.length + part.within}
            self.body = evolve(self.body, statements=tuple(_replaced(s, values) for s in self.body.statements))
        self.index_bits = 32 if self._fits_32_bits() else 64
        self.arguments, self.pointers = self._name_pointers()
        self.scalar_names = scalar_names(self.body)
        self.masks = {
            tile.prefix: Variable(f"{tile.prefix}mask", frozenset({tile.prefix}), torch.bool)
            for tile in (() if self.serial else self.space.tiles)
            if not (
                (tile.prefix != "r" and self.config.blocks[tile.prefix] == 1)
                or (tile.numel.is_int and int(tile.numel) % self._stretch(tile.prefix) == 0 and int(tile.numel) > 0)
            )
        }
        places = {tile.symbol: tile.prefix for tile in self.space.tiles}
        for part in self.segments:
            places |= {part.number: LOOP if part.tile.prefix == "r" else "", part.within: part.tile.prefix}
        self.emitter = Emitter(self.space, places, self.pointers, self.scalar_names, self.masks, self._eviction)
        self.places = Places(
            self.space, self.config, self.segments, self.emitter, self.mirrored, self.moving, self.first
        )
        self.emitter.starts = self.places.starts()
        self.statements = Statements(
            self.body,
            self.space,
            self.plan,
            self.config,
            self.segments,
            self.dtypes,
            self.serial,
            self.emitter,
        )
        for number, pair in pairs.items():
            statement = self.body.statements[number]
            if pair.kind == "exponentials" and number == pair.second and isinstance(statement, Reduce):
                self.emitter.totals[statement.name] = statement.value

    # -- facts -----------------------------------------------------------------------------------------------------------

    def _mirrored(self) -> int:
        """The tiles along a side of a square that is read both as it is and transposed; 0 for any other kernel."""
        if len(self.space.tiles) != 2 or self.space.tile("y") is None or self.serial:
            return 0
        (y, x), blocks = self.space.tiles, self.config.blocks
        if y.numel is not x.numel or not x.numel.is_int or blocks["x"] != blocks["y"]:
            return 0
        read, written = accesses(self.body)
        memory = {self.storage[name] for name, _ in read}
        if any(self.storage[name] in memory for name, _ in written):
            return 0
        swapped = {(name, ex.substitute(index, {x.symbol: y.symbol, y.symbol: x.symbol})) for name, index in read}
        found = any((name, index) in swapped for name, index in read if {x.symbol, y.symbol} <= ex.free_symbols(index))
        side = -(-int(x.numel) // blocks["x"])
        return side if found and side % 2 == 0 else 0

    def _segments(self) -> tuple[tiling.Segments, ...]:
        """Where a division of a tile's symbol is one number for each block."""
        found = (
            tiling.segments_of(tile, self.config.blocks[tile.prefix], self._indices())
            for tile in self.space.tiles
            if tile.prefix != "r" or not self.config.persistent
        )
        return tuple(part for part in found if part is not None)

    def _indices(self) -> list[Expr]:
        return [index for statement in self.body.statements for index in tiling.statement_indices(statement)]

    def _stretch(self, prefix: str) -> int:
        """Points along a tile that one program does."""
        return self.config.blocks[prefix] * (self.config.repeats if prefix == "x" else 1)

    def _configure(self) -> Config:
        traffic = traffic_of(self.body, self.space, self.plan, self.dtypes)
        self.traffic = evolve(traffic, along_r=True) if traffic.scans else traffic
        facts = device_facts(self.body.device)
        if self.body.launch == LOOPED:
            facts = evolve(facts, tuning=options.without_rows(facts.tuning))
        return options.choose(self.space, self.traffic, facts)

    def _fits_32_bits(self) -> bool:
        limit = _INT32 - 2 * max(map(self._stretch, self.config.blocks))
        exprs = [*self._indices(), *(tile.numel for tile in self.space.tiles)]
        total = ONE
        for tile in self.space.tiles:
            total = total * tile.numel
        for statement in self.body.statements:
            exprs += [n.index for n in walk(statement.value) if n.kind == "index"]
        return all(-limit < e.lo and e.hi < limit for part in [*exprs, total] for e in ex.walk(part))

    def _name_pointers(self) -> tuple[tuple[str, ...], dict[str, kir.Pointer]]:
        """Number the pointers as the statements come to them: kernels that differ by the order of their buffers become one text."""
        stored = {self.storage[s.buffer] for s in self.body.statements if isinstance(s, Store)}
        loaded = {self.storage[n.buffer] for s in self.body.statements for n in loads(s.value)}
        first: dict[str, str] = {}
        for buffer, storage in self.storage.items():
            first.setdefault(storage, buffer)
        first = {storage: first[storage] for storage in dict.fromkeys([*self._used_storages(), *first])}
        names: dict[str, str] = {}
        counts: dict[str, int] = {}
        for storage in first:
            kind = "inout" if storage in stored & loaded else "out" if storage in stored else "in"
            names[storage] = f"{kind}{counts.get(kind, 0)}"
            counts[kind] = counts.get(kind, 0) + 1
        self.argument_of = {buffer: names[storage] for buffer, storage in self.storage.items()}
        pointers = {}
        for buffer, storage in self.storage.items():
            same = self.dtypes[buffer] is self.dtypes[first[storage]]
            name = names[storage] if same else f"{names[storage]}_as_{signature_text(self.dtypes[buffer])}"
            pointers[buffer] = kir.Pointer(name, self.dtypes[buffer])
        self.parameters = {names[storage]: self.dtypes[buffer] for storage, buffer in first.items()}
        self.argument_pointers = {
            buffer: kir.Pointer(name, self.parameters[name]) for buffer, name in self.argument_of.items()
        }
        return tuple(first.values()), pointers

    def _used_storages(self) -> list[str]:
        """In the order in which the statements load and store."""
        found: list[str] = []
        for statement in self.body.statements:
            roots = [statement.value]
            if isinstance(statement, Store):
                roots.append(index_value(statement.index))
            found += [self.storage[node.buffer] for node in loads(*roots)]
            if isinstance(statement, Store):
                found.append(self.storage[statement.buffer])
        return found

    def _eviction(self, node: Scalar) -> str:
        """A row that a later walk reads again should stay in the cache, and so should a table that is looked up beside large results;
        a row that is done with should leave it."""
        if node.kind != "load":
            return ""
        if self.config.streamed and lies_anywhere(node.index):
            # Half a table stays by itself, and should go when the other half comes.
            return "" if self.config.halves else "evict_last"
        r = self.space.tile("r")
        if r is None:
            return ""
        along = {r.symbol, *(part.within for part in self.segments if part.tile is r)}
        if not any(step(node.index, symbol) for symbol in along & ex.free_symbols(node.index)):
            # What is the same along the row, or along stretches of it, is small, and other rows read it too.
            return "evict_last"
        if self.config.persistent or self.config.pieces or self.plan.count < 2:
            return ""
        return "evict_last" if self.plan.last_use.get(node.buffer, 0) > self.statements.stage else "evict_first"

    # -- text ------------------------------------------------------------------------------------------------------------

    def generate(self) -> KernelText:
        kernel = self.kernel()
        printer = Printer(kernel.tiles, kernel.index_bits)
        parameters = [*self._signature(), *(f"{p.upper()}BLOCK: tl.constexpr" for p in self.config.blocks)]
        if self.first:
            parameters.insert(0, self.first)
        lines = printer.lines(kernel.body)
        return KernelText(
            entry=_entry(self.body, self.config),
            function=Function(tuple(parameters), tuple(lines), positions(self.body.stacks)),
            helpers=frozenset(printer.helpers),
            body=self.body,
            kernel=kernel,
            buffers=self.arguments,
            scalars=self.body.scalars,
            signature=self._signature(),
            divisible=self._divisible(),
            config=self.config,
            programs=self._programs(),
            asserts=printer.asserts,
            moved=self.moved,
        )

    def kernel(self) -> Kernel:
        """The kernel's statements and arguments; the first half of ``generate``."""
        casts = aliases(self.argument_pointers, self.pointers)
        if self.serial:
            body = [*casts, *self._in_turn()]
        else:
            # Up to the wait a kernel may run while the one before it ends; no access to memory comes earlier.
            opening = self.places.opening()
            body = [*casts, self.places.program(), *opening, kir.Wait(), *self._work()]
        scalars = scalar_variables(self.body)
        if self.first:
            scalars = (position(self.first), *scalars)
        arguments = dict.fromkeys(self.argument_pointers.values())
        prefixes = tuple(tile.prefix for tile in self.space.tiles)
        return Kernel(
            prefixes, self.index_bits, tuple(arguments), scalars, tuple(self.config.blocks.items()), tuple(body)
        )

    def _work(self) -> list[Step]:
        """What a program does once it knows where its blocks lie."""
        if self.space.tile("r") is None or self.config.persistent:
            if self._splits_edge():
                return self._two_versions()
            return self._repeated() if self.config.repeats > 1 else self._straight_code()
        if self.config.pieces:
            pieces = Pieces(self.statements)
            for stage in range(self.plan.count):
                pieces.stage(stage)
        else:
            loops = Loops(self.statements)
            for stage in range(self.plan.count):
                loops.walk(stage)
        return self.emitter.scopes[0].body

    def _two_versions(self) -> list[Step]:
        """Whole blocks without a mask, the last one with it."""
        emitter, x = self.emitter, self.space.tiles[0]
        mask = emitter.masks.pop("x")
        whole = self._straight_code()
        emitter.masks["x"] = mask
        edge = self._straight_code()
        size = kir.BlockSize("x")
        end = kir.total(arith("mul", PID, size), size)
        within = arith("le", end, self.places.numel(x))
        return [kir.If(within, tuple(whole), tuple(edge), whole=frozenset({"x"}))]

    def _straight_code(self) -> list[Step]:
        """All statements one after the other, from a clean slate."""
        self.emitter.scopes[0] = Scope()
        self.emitter.stored.clear()
        if self.config.halves:
            self._choose_rows()
        self._write_statements()
        return self.emitter.scopes[0].body

    def _write_statements(self) -> None:
        for statement in self.body.statements:
            self._straight(statement)
        self.statements.flush()

    def _choose_rows(self) -> None:
        """What follows happens for the rows alone that lie in the program's half of the table."""
        lookup = largest_lookup(self.body, self.space, self.dtypes)
        assert lookup is not None, "a kernel in halves has a table"
        number = self.emitter.emit(lookup.definition)
        for statement in choose_rows(number, lookup.rows, self.masks.get("x")):
            self.emitter.add(statement, number.tiles)
        self.emitter.masks = {**self.masks, "x": MASK}

    def _repeated(self) -> list[Step]:
        """Several blocks in turn. The loads come first, so that those of the next block can be on their way."""
        places, x = self.places, position("xi", "x")
        start = arith("mul", PID, kir.Number(self._stretch("x")))
        head = [kir.Assign((x,), kir.total(start, places.lanes("x")))]
        head += [places.mask(p, mask) for p, mask in self.emitter.masks.items()]
        for statement in self.body.statements:
            self.emitter.emit_loads(statement.value)
        block = self.emitter.scopes[0].body
        loads, count = tuple(block), len(block)
        self._write_statements()
        return pipelined(head, loads, tuple(block[count:]), kir.BlockSize("x"), self.config.repeats)

    def _in_turn(self) -> list[Step]:
        """A loop over all points in one program; the barrier lets each see what those before it wrote."""
        tile, point = self.space.tiles[0], position("point")
        at = kir.total(point, kir.AsIndex(self.places.lanes("x")))
        body = [kir.Assign((position("xi", "x"),), at), *self._straight_code(), kir.Barrier()]
        numel = self.places.numel(tile)
        return [*self.places.define_numel(tile), kir.Wait(), kir.loop(point, numel, kir.Number(1), body)]

    def _splits_edge(self) -> bool:
        """Whether whole blocks should do without a mask that would keep them from using vectors."""
        if self.moving or len(self.space.tiles) > 1 or "x" not in self.masks or len(self.body.statements) > 8:
            return False
        x = self.space.tiles[0]
        if ex.hint(x.numel) < _WORTH_TWO_BODIES:
            return False
        vector = 16 // min((dtype.itemsize for dtype in self.dtypes.values()), default=4)
        known = ex.mod(x.numel, ex.Int(max(min(vector, 8), 1))) is ex.ZERO
        return not known and any(ex.coefficient(index, x.symbol) is ONE for index in self._indices())

    def _needs_turns(self, statement: Store) -> bool:
        """Whether a combining store has no atomic (or one that would lose a NaN)."""
        dtype, mode = self.dtypes[statement.buffer], statement.mode
        if mode == "set":
            return False
        if mode == "add":
            return dtype.itemsize < 4 and dtype not in HALVES
        return mode not in ("min", "max") or dtype.is_floating_point or dtype.itemsize < 4

    def _straight(self, statement: Statement) -> None:
        if isinstance(statement, Store):
            self.statements.store(statement)
        elif isinstance(statement, Reduce):
            self.emitter.reduced[statement.name] = reduction.reduce_block(self.emitter, statement)
        else:
            self.statements.check_scan()
            self.emitter.reduced[statement.name] = reduction.scan_block(self.emitter, statement, None)

    # -- the call --------------------------------------------------------------------------------------------------------

    def _signature(self) -> dict[str, str]:
        signature = {name: "*" + signature_text(dtype) for name, dtype in self.parameters.items()}
        return {**signature, **scalar_types(self.body)}

    def _divisible(self) -> tuple[str, ...]:
        """Pointers that are multiples of 16 bytes: those of buffers that start at a multiple of it in their allocation."""
        aligned: dict[str, bool] = {}
        for buffer in self.body.buffers:
            offset = buffer.layout.offset * buffer.layout.dtype.itemsize
            name = self.argument_of[buffer.name]
            aligned[name] = aligned.get(name, True) and offset.is_int and int(offset) % 16 == 0
        return tuple(name for name, whole in aligned.items() if whole)

    def _programs(self) -> Expr:
        total: Expr = ONE
        if self.mirrored:
            return ex.Int(self.mirrored * (self.mirrored + 1))
        for tile in () if self.serial else self.space.tiles:
            if tile.prefix != "r":
                points = self._stretch(tile.prefix)
                total = total * ((tile.numel + (points - 1)) // points)
        return total * 2 if self.config.halves else total


def _replaced(statement: Statement, values: Mapping[Expr, Expr]) -> Statement:
    """The statement with symbols replaced, inside the definitions of indirect symbols too."""
    changed = evolve(statement, value=substitute(statement.value, values))
    if not isinstance(changed, Store):
        return changed
    index = substitute(load("", changed.index, torch.float32), values).index
    return evolve(changed, index=index)


def _entry(body: KernelBody, config: Config) -> str:
    """The function's name: the kind of kernel, and the body's name; where no graph node gave it one, the operations that it does."""
    kind = "per" if config.persistent or config.pieces else "red" if "r" in config.blocks else "poi"
    if body.origins:
        return f"triton_{kind}_{body.name}"
    ops = dict.fromkeys(node.op for node in operations(body))
    words = [op for op in ops if op not in _PLAIN] or ["transpose" if "y" in config.blocks else "copy"]
    return f"triton_{kind}_{body.name.replace('kernel', '_'.join(words[-4:]), 1)}"
