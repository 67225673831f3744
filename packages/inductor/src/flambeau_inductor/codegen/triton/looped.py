"""Rows too long for registers: one loop over the row for each stage of the plan.

In: the statements of a kernel that loops over ``r``. Out: statements in its emitter: accumulators, the loops, what follows from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import kernel_ir as kir
from ...expr import Expr
from ...ir.kernel import Reduce, ScanStep, Statement, Store
from ...kernel_ir import LOOP, Node, Variable
from . import edges, pairs, reduction
from .passes import is_inner
from .statements import Statements
from .values import Scope

#: The mask of a block of the row.
MASK = Variable("rmask", frozenset({"r"}), torch.bool)


class Loops:
    """Writes the walks of one kernel."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.emitter = statements.emitter
        r = statements.space.tile("r")
        assert r is not None
        self.r = r
        self.emitter.together = 4 if statements.config.blocks["x"] <= 2 else 1
        self.numel: Node = kir.Number(int(r.numel)) if r.numel.is_int else kir.position("rnumel")
        self.segments = [part for part in statements.segments if part.tile is r]
        self.start, self.position = kir.position("start"), kir.position("ri", "r")

    def walk(self, stage: int) -> None:
        """The outer statements of ``stage``, then one loop for its inner ones."""
        statements, emitter = self.statements, self.emitter
        chosen = statements.begin(stage)
        for statement in chosen:
            if isinstance(statement, Store) and not is_inner(statement):
                statements.store(statement)
        statements.flush()
        inner = [s for s in chosen if is_inner(s)]
        if not inner:
            return
        states = self._open_pairs(stage)
        single = [s for s in inner if id(s) not in states]
        accumulators = {s.name: reduction.start(emitter, s) for s in single if isinstance(s, Reduce)}
        carries = {s.name: reduction.scan_carry(emitter, s) for s in inner if isinstance(s, ScanStep)}

        def block() -> Scope:
            emitter.scopes.append(Scope())
            for statement in inner:
                if id(statement) in states:
                    if statement is states[id(statement)].first:
                        pairs.step(emitter, states[id(statement)])
                elif isinstance(statement, Reduce):
                    reduction.step(emitter, accumulators[statement.name])
                elif isinstance(statement, ScanStep):
                    statements.check_scan()
                    emitter.reduced[statement.name] = reduction.scan_block(emitter, statement, carries[statement.name])
                elif isinstance(statement, Store):
                    statements.store(statement)
            statements.flush()
            # What a loop stored cannot be forwarded to another: its variables hold the last block only.
            emitter.stored = {key: value for key, value in emitter.stored.items() if not value.tiles & {"r", LOOP}}
            return emitter.scopes.pop()

        inside = self._inside(inner, any(state.pair.kind == "moments" for state in states.values()))
        if inside is None:
            self._plain(block())
        else:
            rows = edges.open_rows(emitter, inside, stage, self._program())
            emitter.masks.pop("r", None)
            emitter.aligned = rows[1]
            whole = block()
            emitter.aligned = {}
            emitter.masks["r"] = MASK
            self._with_edges(whole, block(), rows[0])
        for name, accumulator in accumulators.items():
            emitter.reduced[name] = reduction.finish(emitter, accumulator)
        for state in {state.pair: state for state in states.values()}.values():
            pairs.finish(emitter, state)

    def _open_pairs(self, stage: int) -> dict[int, pairs.PairState]:
        """The states of the pairs that are reduced in ``stage``, by the identities of both statements."""
        plan, statements = self.statements.plan, self.statements.body.statements
        found: dict[int, pairs.PairState] = {}
        for number, pair in plan.pairs.items():
            if number == pair.first and plan.stages[number] == stage:
                first, second = statements[pair.first], statements[pair.second]
                assert isinstance(first, Reduce) and isinstance(second, Reduce)
                found[id(first)] = found[id(second)] = pairs.start(self.emitter, pair, first, second)
        return found

    def _inside(self, inner: Sequence[Statement], counted: bool) -> edges.Inside | None:
        """How to treat the row's edges; None for one mask everywhere."""
        if counted or self.segments or self.statements.config.blocks["x"] != 1:
            return None
        inside = edges.inside_of(inner, self.r, self.statements.dtypes)
        if inside is None or self.statements.config.blocks["r"] % inside.vector:
            return None
        return inside

    def _program(self) -> dict[Expr, Node]:
        """The tile symbols of a program of one row, as scalars."""
        pid = kir.position("pid")
        places: dict[Expr, Node] = {tile.symbol: pid for tile in self.statements.space.tiles if tile.prefix == "x"}
        for part in self.statements.segments:
            number = kir.position("xn")
            before = kir.arith("mul", number, kir.Number(part.length))
            places |= {part.number: number, part.within: kir.arith("sub", pid, before)}
        return places

    def _plain(self, scope: Scope) -> None:
        body: list[kir.Statement] = [kir.Assign((self.position,), kir.total(self.start, self.statements.row_lanes()))]
        for part in self.segments:
            number, within = kir.position("rn", LOOP), kir.position("rw", "r")
            length = kir.Number(part.length)
            body.append(kir.Assign((number,), kir.arith("floordiv", self.start, length)))
            body.append(kir.Assign((within,), kir.arith("sub", self.position, kir.arith("mul", number, length))))
        if "r" in self.emitter.masks:
            body.append(kir.Assign((MASK,), kir.InRange("r", self.position, self.numel)))
        self._loop(self.numel, [*body, *scope.body])

    def _with_edges(self, whole: Scope, edge: Scope, shift: Variable | None) -> None:
        """A loop that counts from the first whole vector, ``shift`` elements before the row."""
        at = kir.position("at", "r")
        end = kir.total(self.numel, shift) if shift is not None else self.numel
        within = kir.arith("le", kir.total(self.start, kir.BlockSize("r")), end)
        behind_first = (kir.arith("ge", self.start, shift),) if shift is not None else ()
        mask = kir.Assign((MASK,), kir.InRange("r", self.position, self.numel, both=shift is not None))
        body: list[kir.Statement] = [
            kir.Assign((at,), kir.total(self.start, self.statements.row_lanes())),
            kir.Assign((self.position,), kir.arith("sub", at, shift) if shift is not None else at),
            kir.If(
                kir.All((*behind_first, within), kir.NO_TILES),
                tuple(whole.body),
                (mask, *edge.body),
                whole=frozenset({"r"}),
            ),
        ]
        self._loop(end, body)

    def _loop(self, stop: Node, body: Sequence[kir.Statement]) -> None:
        self.emitter.scopes[0].body.append(kir.loop(self.start, stop, kir.BlockSize("r"), body))
